# SPDX-License-Identifier: Apache-2.0
"""The data sets that need files: what they are, where they come from, under which licence, and their checksums."""

from __future__ import annotations

import dataclasses

from idiolect.core.checks import RequestError, nearest
from idiolect.data import conversions
from idiolect.data.conversions import HOSPITALS, Convert


@dataclasses.dataclass(frozen=True)
class Original:
    """One file as a set's home publishes it; `sha256` is None where no trustworthy checksum is known."""

    address: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.address.rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One data set: `files` are ours, each with the checksum of what it holds, whatever packs it (`packing.digest`).

    `exact`: the conversion of the originals has exactly that content; otherwise `remark` says how it may differ.
    """

    name: str
    title: str
    clients: str
    rows: int
    predicted: str
    licence: str
    citation: str
    home: str
    originals: tuple[Original, ...]
    convert: Convert
    files: dict[str, str]
    size: int  # bytes of our files
    remark: str = ""
    exact: bool = True

    @property
    def shown_size(self) -> str:
        """Bytes for a reader."""
        return f"{self.size / 1e6:.1f} MB" if self.size >= 1e6 else f"{self.size / 1e3:.0f} kB"


def _at(folder: str, files: dict[str, str | None]) -> tuple[Original, ...]:
    return tuple(Original(f"{folder}/{name}", sha256) for name, sha256 in files.items())


def _idx(prefix: str, images: str, labels: str) -> dict[str, str | None]:
    return {f"{prefix}-images-idx3-ubyte.gz": images, f"{prefix}-labels-idx1-ubyte.gz": labels}


UCI = "https://archive.ics.uci.edu/static/public"
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
GITHUB = "https://raw.githubusercontent.com"
MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"  # the home at yann.lecun.com often refuses
CC_BY = "CC BY 4.0"
NOT_STATED = "none stated; cite"
PLAYS = (
    *("a_and_c", "all_well", "as_you", "com_err", "coriolan", "cymbelin", "dream", "hamlet", "hen_iv_1", "hen_iv_2"),
    *("hen_v", "hen_vi_1", "hen_vi_2", "hen_vi_3", "hen_viii", "j_caesar", "john", "lear", "lll", "m_for_m"),
    *("m_wives", "macbeth", "merchant", "much_ado", "othello", "pericles", "r_and_j", "rich_ii", "rich_iii"),
    *("t_night", "taming", "tempest", "timon", "titus", "troilus", "two_gent", "win_tale"),
)

_ROWS = (
    Dataset(
        name="heart_disease",
        title="UCI Heart Disease",
        clients="4 hospitals",
        rows=920,
        predicted="disease or not",
        licence=CC_BY,
        citation="Janosi, Steinbrunn, Pfisterer, Detrano (1989). Heart Disease. UCI Machine Learning Repository. "
        "doi:10.24432/C52P4X",
        home="https://archive.ics.uci.edu/dataset/45/heart+disease",
        originals=(Original(f"{UCI}/45/heart+disease.zip"),),
        convert=conversions.heart_disease,
        files={
            f"tabular/heart_disease/processed.{hospital}.data": checksum
            for hospital, checksum in zip(
                HOSPITALS,
                (
                    "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
                    "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
                    "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
                    "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
                ),
            )
        },
        size=39570,
    ),
    Dataset(
        name="mushrooms",
        title="UCI Mushroom, as LIBSVM text",
        clients="dealt out",
        rows=8124,
        predicted="edible or poisonous",
        licence=CC_BY,
        citation="Mushroom (1981). UCI Machine Learning Repository. doi:10.24432/C5959T. LIBSVM text: Chang, Lin "
        "(2011). LIBSVM. ACM TIST 2(3).",
        home="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#mushrooms",
        originals=_at(LIBSVM, {"mushrooms": None}),
        convert=conversions.libsvm,
        files={"libsvm/mushrooms.bz2": "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538"},
        size=16038,
    ),
    Dataset(
        name="a6a",
        title="UCI Adult in Platt's encoding, parts a6a and a6a.t",
        clients="dealt out",
        rows=32561,
        predicted="income above 50000 or not",
        licence=CC_BY,
        citation="Becker, Kohavi (1996). Adult. UCI Machine Learning Repository. doi:10.24432/C5XW20. Encoding: Platt "
        "(1998). Fast training of SVMs using sequential minimal optimization.",
        home="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#a6a",
        originals=_at(LIBSVM, {"a6a": None, "a6a.t": None}),
        convert=conversions.libsvm,
        files={
            "libsvm/a6a.bz2": "6023becedbd392fdc6a62ad94b60c9363149370d4c57ef13949fcc765842a031",
            "libsvm/a6a.t.bz2": "e3134665304b612ac013d4f541d9b0ff9bf96709c446352e4ad5c487c7c783ac",
        },
        size=100543,
        remark="the rows of a6a.t may come in another order than in the bundled file",
        exact=False,
    ),
    Dataset(
        name="w6a",
        title="Platt's web pages, parts w6a and w6a.t",
        clients="dealt out",
        rows=49749,
        predicted="category of a page or not",
        licence=NOT_STATED,
        citation="Platt (1998). Fast training of SVMs using sequential minimal optimization.",
        home="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#w6a",
        originals=_at(LIBSVM, {"w6a": None, "w6a.t": None}),
        convert=conversions.libsvm,
        files={
            "libsvm/w6a.bz2": "0db197939896da01e6677f8dc39fe824dffcb75c185bd681bb870d33c93c8f82",
            "libsvm/w6a.t.bz2": "2e9889be0d86810d3d447e3c7cf75695c0c26b9476a3d78f81b86378cb5106b1",
        },
        size=326001,
        remark="our numbers used the same rows written anew as text; those of w6a.t may come in another order",
        exact=False,
    ),
    Dataset(
        name="shakespeare",
        title="Speeches of Shakespeare's plays",
        clients="1138 roles",
        rows=31028,
        predicted="the next character",
        licence="public domain",
        citation="William Shakespeare; marked up by Jon Bosak (1992-1999), free to copy and distribute.",
        home="http://www.ibiblio.org/xml/examples/shakespeare/",
        originals=_at("http://www.ibiblio.org/xml/examples/shakespeare", dict.fromkeys(f"{p}.xml" for p in PLAYS)),
        convert=conversions.shakespeare,
        files={
            "text/shakespeare_speeches.jsonl.xz": "fae5bf05ccf667c24c937a42994b57c561e5361bbbd991aaf7ed823d49ee9196"
        },
        size=1529452,
    ),
    Dataset(
        name="school",
        title="ILEA exam scores",
        clients="139 schools",
        rows=15362,
        predicted="the exam score",
        licence=NOT_STATED,
        citation="Nuttall, Goldstein, Prosser, Rasbash (1989). Differential school effectiveness. Int. J. Educ. Res. "
        "13(7). File: Zhou, Chen, Ye (2012). MALSAR.",
        home="https://github.com/jiayuzhou/MALSAR",
        originals=_at(
            f"{GITHUB}/jiayuzhou/MALSAR/fb9751594983df020ddc4f7e4a40520ee7c37989/data",
            {"school.mat": "57fb3238fdd03a9aa17276e2ce18d9bbb5d128c3261e794fe6233b58b6909068"},
        ),
        convert=conversions.school,
        files={"tabular/school139.npz.xz": "dce6fedc60d4dc0598e7780b6ff86187c8929b84bfe868e52037851c569d75c0"},
        size=28780,
    ),
    Dataset(
        name="landmine",
        title="Landmine detection",
        clients="29 minefields",
        rows=14820,
        predicted="mine or not",
        licence=NOT_STATED,
        citation="Xue, Liao, Carin, Krishnapuram (2007). Multi-task learning for classification with Dirichlet process "
        "priors. JMLR 8.",
        home="https://github.com/daizhongxiang/Federated_Bayesian_Optimization",
        originals=_at(
            f"{GITHUB}/daizhongxiang/Federated_Bayesian_Optimization/30a4548606f2ae9bc62c6bf0eb4110177aa3876a",
            {"LandmineData.mat": "2163ab20a80e33a8b65593c48cf283c540599dcb291105e63fa4af2ce24c2bea"},
        ),
        convert=conversions.landmine,
        files={"tabular/landmine29.npz.xz": "e6563b6798cf249a8ff0a524c3d19ebbdc05338ba4c136f46a0ae96ab61816ec"},
        size=937664,
        remark="a copy that others keep: the authors' own page is gone",
    ),
    Dataset(
        name="vehicle",
        title="Vehicle sensors (SensIT)",
        clients="23 sensors",
        rows=1860,
        predicted="which of two vehicles",
        licence=NOT_STATED,
        citation="Duarte, Hu (2004). Vehicle classification in distributed sensor networks. J. Parallel Distrib. "
        "Comput. 64(7). Split: Li et al. (2021). Ditto.",
        home="https://github.com/litian96/ditto",
        originals=_at(
            f"{GITHUB}/litian96/ditto/602f571de561f7796104860108dfa91182bfbcd8/data/vehicle/data/train",
            {"mytrain.json": "a8c8b22a89ea64e5a563cffe94352b48c1f44a02100fd3256adfc09dc43d9ddc"},
        ),
        convert=conversions.vehicle,
        files={"tabular/vehicle23.npz.xz": "ce8d47fa3c97b2cbd40ab3b0b70a9134ec41887bde64c6e710867ab692378de5"},
        size=617240,
        remark="the training part of Ditto's split, 1860 of 43695 rows",
    ),
    Dataset(
        name="uci_har",
        title="Human Activity Recognition Using Smartphones",
        clients="30 people",
        rows=10299,
        predicted="one of 6 activities",
        licence=f"{CC_BY}, not commercial",
        citation="Reyes-Ortiz, Anguita, Ghio, Oneto, Parra (2013). Human Activity Recognition Using Smartphones. UCI "
        "Machine Learning Repository. doi:10.24432/C54S4K",
        home="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
        originals=_at(
            f"{UCI}/240",
            {
                "human+activity+recognition+using+smartphones.zip": "c00b803081a5c797cd5e4b83700a9810b38d53d9d84e0191"
                "7e090e1fdbc81031"
            },
        ),
        convert=conversions.uci_har,
        files={"tabular/uci_har_windows.npz.xz": "ca390c3aeeb78d4fea468f93f097dc2c92fc61bb4926bfb070f4f2d13bec3a4d"},
        size=8006236,
        remark="recordings of one person and activity come in the order of the archive, in ours in another",
        exact=False,
    ),
    Dataset(
        name="mnist_writers",
        title="MNIST by its writers",
        clients="539 writers",
        rows=70000,
        predicted="one of 10 digits",
        licence="CC BY-SA 3.0, BSD",
        citation="LeCun, Cortes, Burges (1998). The MNIST database. Yadav, Bottou (2019). Cold case: the lost MNIST "
        "digits. NeurIPS.",
        home="https://github.com/facebookresearch/qmnist",
        originals=(
            *_at(
                MNIST,
                _idx(
                    "train",
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                )
                | _idx(
                    "t10k",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
            *_at(
                f"{GITHUB}/facebookresearch/qmnist/master",
                {
                    "qmnist-train-labels-idx2-int.gz": "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0"
                    "dd9f",
                    "qmnist-test-labels-idx2-int.gz": "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030"
                    "d06",
                },
            ),
        ),
        convert=conversions.mnist_writers,
        files={"images/mnist_writers.npz.xz": "3c3111edc24ad10a2599b8fe4985d7d326486bbfd061a0cc68c224f23a796df8"},
        size=9138776,
        remark="297 more writers, those of the test images, can be held out",
    ),
    Dataset(
        name="fashion_mnist",
        title="Fashion-MNIST, balanced subset",
        clients="dealt out",
        rows=12000,
        predicted="one of 10 garments",
        licence="MIT",
        citation="Xiao, Rasul, Vollgraf (2017). Fashion-MNIST. arXiv:1708.07747",
        home="https://github.com/zalandoresearch/fashion-mnist",
        originals=_at(
            f"{GITHUB}/zalandoresearch/fashion-mnist/master/data/fashion",
            _idx(
                "train",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            )
            | _idx(
                "t10k",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
        convert=conversions.fashion_mnist,
        files={"images/fashion_mnist_sub.npz.xz": "e851c02c21146831dc68008b336fe67fe561cb45607ada39f5d3c9357c087835"},
        size=4545264,
        remark="1000 training and 200 test images per class, the ones of our numbers",
    ),
    Dataset(
        name="kmnist",
        title="Kuzushiji-MNIST, test half",
        clients="dealt out",
        rows=10000,
        predicted="one of 10 characters",
        licence="CC BY-SA 4.0",
        citation="Clanuwat et al. (2018). Deep learning for classical Japanese literature. arXiv:1812.01718. KMNIST "
        "Dataset (created by CODH), adapted from Kuzushiji Dataset (created by NIJL and others). "
        "doi:10.20676/00000341",
        home="https://codh.rois.ac.jp/kmnist/",
        originals=_at(
            "https://codh.rois.ac.jp/kmnist/dataset/kmnist",
            _idx(
                "t10k",
                "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
                "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
            ),
        ),
        convert=conversions.kmnist,
        files={"images/kmnist_t10k.npz.xz": "715d296a0873282308dfe003ba0b8b8329c17f6f6d7d6650c78f3095d83d0470"},
        size=2715456,
    ),
    Dataset(
        name="cifar10",
        title="CIFAR-10, balanced subset",
        clients="dealt out",
        rows=12000,
        predicted="one of 10 objects",
        licence=NOT_STATED,
        citation="Krizhevsky (2009). Learning multiple layers of features from tiny images.",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        originals=_at(
            "https://www.cs.toronto.edu/~kriz",
            {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
        ),
        convert=conversions.cifar10,
        files={"images/cifar10_sub.npz.xz": "743a439b5741741424dff5798ba65692a5cfe8b7bab510101f9287e0d1a2388f"},
        size=27406752,
        remark="1000 training and 200 test images per class, by position; ours were read from another copy",
        exact=False,
    ),
    Dataset(
        name="emnist",
        title="EMNIST by class, first test images",
        clients="dealt out",
        rows=32258,
        predicted="one of 62 characters",
        licence="public domain",
        citation="Cohen, Afshar, Tapson, van Schaik (2017). EMNIST. arXiv:1702.05373",
        home="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        originals=_at(
            "https://biometrics.nist.gov/cs_links/EMNIST",
            {"gzip.zip": "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"},
        ),
        convert=conversions.emnist,
        files={"images/emnist_byclass_32k.npz.xz": "3dbbeac3724bd6ac91e8c1b31f7136a76982d8740d290ba9ed4131bbc7344c46"},
        size=6183872,
        remark="the first 32258 of 116323 test images; ours were read from another copy",
        exact=False,
    ),
)

DATASETS = {row.name: row for row in _ROWS}


def find_dataset(name: str) -> Dataset:
    """The row of that name; an unknown one is refused with the nearest."""
    if name not in DATASETS:
        raise RequestError(
            f"There is no data set {name!r} that needs files.{nearest(name, DATASETS)} `idiolect datasets list` "
            "shows all."
        )
    return DATASETS[name]
