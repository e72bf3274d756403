"""The central solve of FedECADO, on numpy and scipy alone.

The centre and every client are capacitors; an inductor with current `I_i` (the flow) ties
client i to the centre; training is the circuit relaxing to rest. Symbols, used throughout:

    n, a       enrolled clients; clients whose update is in this round
    x_c        central state, a flat vector of size d
    I_i, J_i   flow from the centre into client i; its change I_i - I_i_k since the window's start
    F, S       sum of the flows of all n clients; of the n - a absent ones
    w_i, h_i   data weight (mean 1 over the enrolled); mean curvature of the client's loss
    T_i, T     simulated time of a client's window; the longest of the round
    G_i        sensitivity: how strongly client i answers a change of its flow
    L, C       inductance; capacitance of the central node
    rho, lam, kappa, delta    bound on extrapolation, inertia, damping factor, tolerance

`circuit` turns a round's scalars into T, G, L, C; `gamma` lays trajectories on a common time;
`arrow` factors and solves one backward-Euler step; `steps` picks the steps; `reduced` is the
solver in use and `direct` the plain one that tests hold it against. `basis` holds the long vectors,
`gram` their inner products, taken on a `sample`; `columns` passes over them by blocks, and `workspace`
keeps their memory between rounds.
"""
