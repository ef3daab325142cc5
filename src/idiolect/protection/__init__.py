# SPDX-License-Identifier: Apache-2.0
"""Protections: wrappers around any algorithm that change its uploads, or what the server makes of them."""

from idiolect.protection.choices import Attack as Attack
from idiolect.protection.choices import ClientPrivacy as ClientPrivacy
from idiolect.protection.choices import Compression as Compression
from idiolect.protection.choices import Protection as Protection
from idiolect.protection.choices import Robustness as Robustness
from idiolect.protection.choices import RowPrivacy as RowPrivacy
from idiolect.protection.choices import SecureAggregation as SecureAggregation
from idiolect.protection.refusals import refuse_protection as refuse_protection
from idiolect.protection.row_privacy import with_private_rows as with_private_rows
from idiolect.protection.wrapper import protect as protect
from idiolect.protection.wrapper import with_private_noise as with_private_noise
