# SPDX-License-Identifier: Apache-2.0
"""Options of XLA for the large programs of a run, whoever compiles them."""

# Of a GPU: what can be recorded goes to the device as one graph, not kernel by kernel; XLA's own list has all of these
# but loops. 100 rounds of softmax regression take 0.033 s with loops and 0.044 s without, an LSTM's 1.5 % longer, those
# of large convolutions as long (H200, 2026-11-19, benchmarks/results/rounds-gpu.txt).
_RECORDED = ("FUSION", "CUBLAS", "CUBLASLT", "CUSTOM_CALL", "CUDNN", "DYNAMIC_SLICE_FUSION", "WHILE")
OPTIONS = {"xla_gpu_enable_command_buffer": ",".join(_RECORDED)}
