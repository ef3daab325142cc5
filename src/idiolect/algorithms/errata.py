# SPDX-License-Identifier: Apache-2.0
"""Printed mistakes of the implemented papers, one line each; docs/errata.md has places, evidence and tests."""

PAGE = "docs/errata.md"

ERRATA = {
    "E000-1": "minibatch SGD is the limit eta -> 0 with beta eta K fixed; printed: eta = 0, where nothing moves",
    "E000-2": "the consensus error decays with phi = (1 + alpha nu^K)/(1 + alpha); printed in (21): with nu",
    "E000-3": "slips in the two-client instance: misplaced squares, zeta^2/L for zeta^2/(2L), arg max for max",
    "E000-4": "an outer step beta = sqrt(M), printed as safe, diverges for alpha = 1, many local steps and M >= 9",
    "E000-5": "theorem 1 does not hold for alpha < 1 and clients of different curvature",
    "E000-6": "slips: the error stays fixed without personalization; kappa < 4MKR, the square is a footnote mark",
    "E001-1": "the start needs sum_i alpha_i h_i = 0; printed: sum_i h_i = 0, which leads to another limit",
    "E001-2": "h_i = grad f_i at the start leads to another limit; it has to be projected first",
    "E001-3": "the server's mean weighs client j by alpha_j^2/gamma_j; printed with index i",
    "E001-4": "steps up to 1/A_i need A_i >= L_i; printed once: A_i >= L_i^2",
    "E001-5": "alpha_i = 0 is allowed, but the local step divides by it; such clients are left out of it",
    "E001-6": "figure 1's split has three names, and alpha differs between captions, text and table 1",
    "E001-7": "the released code of the experiments is not algorithm 1",
    "E002-1": "algorithm 2 updates w with probability p_w; printed: with probability 1 - p_w",
    "E002-2": "algorithm 2 steps beta by (1/M) grad_beta f_m; printed without 1/M",
    "E002-3": "the block that is not sampled has y = x (and z follows x); printed: it is never assigned",
    "E002-4": "z moves by (gamma/eta)(y+ - x), as in algorithm 4; printed in algorithm 3: (y+ - y)",
    "E002-5": "SVRCD subtracts the sampled gradient at v; printed without, and biased",
    "E002-6": "LSGD-PFL steps beta by (eta/M) grad_beta f_m; printed without 1/M",
    "E002-7": "constants of MT2, APFL2 and WS2: factors 2 and M",
    "E002-8": "the penalty is lam/2 everywhere; the synthetic runs have lam = 0.01/sigma_h, printed: 0.01 sigma_h",
    "E002-9": "labels are drawn with sigmoid(+beta.x); printed with the other sign",
    "E002-10": "LSGD-PFL of the released synthetic runs is not algorithm 1",
    "E002-11": "ASVRCD of the released image runs has 0.02 of the full gradient and is biased",
    "E002-12": "fifteen smaller slips of text and released code",
    "E002-13": "LSGD-PFL's step is at most 1/(4 max(L^w, L^beta)); printed: 1/(4 L^beta)",
    "E002-14": "figure 1's L2SGD+ is another method: its code divided by M and added the penalty twice",
    "E002-15": "the released image losses average unequal batches, so that a client's last rows weigh more",
    "E003-1": "a local phase is K steps of SGD; printed in equation 1: K times the first gradient",
    "E003-2": "the server weighs by n_m/n; printed: n_m/(n M), which shrinks the model M-fold in every round",
    "E003-3": "the range of steps that theorem 4.1 asks for is empty",
    "E003-4": "rounding both probabilities of a route gives (0, 0) at a tie; theory covers another model",
    "E003-5": "table 4's LSTM has 4.05 M parameters; printed: 72.38 M",
    "E003-6": "the published generalized accuracies are measured at different moments for different methods",
    "E003-7": "numbers of the text that contradict the tables",
    "E003-8": "w_g descends its own loss; printed in equation 5: that of the mixture, which trains no networks",
    "E004-1": "algorithm 1's step acts without the 1/N of its derivation",
    "E004-2": "constants of theorems 2.2, 3.a, 4.1 and 6",
    "E004-3": "proposition 3's step lacks a square root and a factor N",
    "E004-4": "rho(W) is 1 for doubly stochastic weights only; the step is 1/(2 L rho(W)), printed: 1/(2L)",
    "E004-5": "the rate has the smallest positive eigenvalue of W; printed without it",
    "E004-6": "(1/N) sum 1/N_i is a ratio of sample counts; its inverse is the speed-up",
    "E004-7": "slips: <= in weights and in counts, x_i in the naive scheme, Lambda^T Lambda in the mirror map",
    "E004-8": "figure 1(b): noise 0.32 and 0.5 cannot beat training alone at 1000 samples",
}


def anchor(number: str) -> str:
    """The place of an erratum on its page, from the root of the repository."""
    return f"{PAGE}#{number.lower()}"
