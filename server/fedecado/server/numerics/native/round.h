/* A round of few clients and short vectors, whole: nobody is late, and one step over all of T is enough.
 *
 * The formulas, and why they are so, are in stretch.py, circuit.py and leap.py, which compute everything else and are
 * what tests hold this against. Names are theirs. Where anything is unusual nothing counts of what was written, and
 * Python begins again: it knows what to say of it.
 */

/* Clients of a round, and its rows: F and their displacements. */
#define CLIENTS 19
#define SLOTS (CLIENTS + 1)

/* Options, and constants of those modules. */
struct knobs {
    double rho, inertia, kappa, inductance, tolerance, own;
    double faster, slower, least, most;
    double follow, stable, stiffest, straight, cautious;
};

/* Where a client's window ended, its flow, and where to write the next one. */
struct visitor {
    const float *end;
    const float *before;
    float *after;
    double time, curvature, weight;
    double square; /* of its flow */
};

struct round {
    size_t clients, parameters;
    const float *central;
    float *next;
    const double *total; /* F */
    double *moved;       /* F after the round */
    size_t alone;        /* nobody else has a flow */
    double enrolled, pace, window;
    struct visitor visitors[];
};

/* What is told of it; a line per client. */
struct outcome {
    double T, window, pace, L, C, reach, agreement, change, rate, error;
    struct {
        double J, moved, square; /* norm of J_i; squared lengths of d_i and of the next flow */
    } clients[];
};

/* What lies between a round's vectors and its result. */
struct scalars {
    double gram[SLOTS * SLOTS], stiff[CLIENTS], length[CLIENTS], rho[CLIENTS], straight[CLIENTS], G[CLIENTS];
    double x_c[SLOTS], met[SLOTS];
    float weights[SLOTS], J[CLIENTS * SLOTS];
};

static double root(double square) { return square < 0 ? 0.0 : sqrt(square); }

/* The angle between the mean displacement and -F, and the pace that follows from it; see stretch.py. */
static double answered(const struct knobs *k, const struct round *r, const struct scalars *s, double *agreement)
{
    size_t slots = r->clients + 1;
    double along = 0, square = 0;
    for (size_t i = 1; i < slots; i++)
        along += s->gram[i];
    for (size_t i = 1; i < slots; i++)
        for (size_t j = 1; j < slots; j++)
            square += s->gram[i * slots + j];
    double size = root(square) * root(s->gram[0]);
    *agreement = 0;
    if (!(size > 0 && size < INFINITY))
        return r->pace;
    double cosine = *agreement = fmin(1.0, fmax(-1.0, -along / size));
    return fmin(k->most, fmax(k->least, r->pace * exp((cosine > 0 ? k->faster : k->slower) * cosine)));
}

/* How far trajectories are extrapolated, and are believed to be straight; see `_Clients` in circuit.py. */
static void reach(const struct knobs *k, const struct round *r, struct scalars *s, double stretch)
{
    double squares = 0, a = (double)r->clients;
    stretch = fmax(1.0, stretch);
    for (size_t i = 0; i < r->clients; i++)
        squares += s->length[i] * s->length[i];
    double usual = k->rho * (1.0 + 2.0 / a) * sqrt(squares / a);
    for (size_t i = 0; i < r->clients; i++) {
        double bend = s->stiff[i] * r->visitors[i].time, far = stretch;
        s->straight[i] = bend ? fmax(k->straight / bend, k->cautious) : INFINITY;
        if (s->length[i])
            far *= fmax(1.0, usual / s->length[i]);
        s->rho[i] = fmin(s->straight[i], fmax(far, k->cautious));
    }
}

/* Over-relaxation of the stiffest direction, as far as clients have come to rest in it. */
static double swing(const struct knobs *k, const struct round *r, const struct scalars *s, double T)
{
    double left = 0, far = 0, a = (double)r->clients;
    for (size_t i = 0; i < r->clients; i++) {
        left += exp(-k->stiffest * (double)r->parameters * s->stiff[i] * r->visitors[i].time);
        far += fmin(T / r->visitors[i].time, s->rho[i]);
    }
    return (1.0 - left / a) * (far / a);
}

/* T, G_i, L and C; see circuit.py. False if they leave floating-point range. */
static int build(const struct knobs *k, const struct round *r, struct scalars *s, struct outcome *o)
{
    double a = (double)r->clients, squares = 0, reluctance = 0, largest = 0;
    for (size_t i = 0; i < r->clients; i++)
        squares += r->visitors[i].time * r->visitors[i].time;
    double now = sqrt(squares / a);
    o->window = r->window > 0 ? r->window * pow(now / r->window, k->follow) : now;
    o->C = 1.0 + k->inertia * (r->enrolled - a);
    double stretch = o->pace * (1.0 + o->C / a), limit = k->stable * (2.0 + 4.0 * o->C / a);
    reach(k, r, s, stretch);
    double swings = swing(k, r, s, stretch * o->window);
    if (swings > limit) {
        double slower = fmax(fmin(o->pace, k->least), o->pace * limit / swings);
        stretch = stretch * slower / o->pace;
        o->pace = slower;
        reach(k, r, s, stretch);
    }
    o->T = stretch * o->window;
    o->reach = 0;
    for (size_t i = 0; i < r->clients; i++) {
        double span = k->own ? fmin(o->T, s->straight[i] * r->visitors[i].time) : o->T;
        s->G[i] = 1.0 / span + s->stiff[i];
        reluctance += 1.0 / s->G[i];
        largest = fmax(largest, s->G[i]);
        o->reach = fmax(o->reach, s->rho[i]);
    }
    reluctance /= a;
    o->L = k->inductance ? k->inductance : k->kappa * (reluctance * reluctance) / (4 * a);
    return o->T > 0 && o->T < INFINITY && o->L > 0 && o->L < INFINITY && largest < INFINITY;
}

/* The step in closed form; see leap.py. False if its error is too large, or a result too long to be squared. */
static int leap(const struct knobs *k, const struct round *r, struct scalars *s, struct outcome *o)
{
    size_t slots = r->clients + 1;
    double T = o->T, pivot = o->C, square = 0, side = sqrt((double)r->parameters), part = T / o->C;
    double longest = sqrt(FLT_MAX);
    for (size_t i = 0; i < r->clients; i++)
        pivot += T * (T / (o->L + T / s->G[i]));
    double far = T / pivot;
    s->x_c[0] = -far;
    for (size_t i = 0; i < r->clients; i++) {
        double b = T / (o->L + T / s->G[i]), n = fmin(T / r->visitors[i].time, s->rho[i]);
        s->x_c[i + 1] = far * (b * n);
    }
    for (size_t i = 0; i < slots; i++) {
        s->weights[i] = (float)s->x_c[i];
        s->met[i] = 0;
        for (size_t j = 0; j < slots; j++)
            s->met[i] += s->gram[i * slots + j] * s->x_c[j];
        square += s->x_c[i] * s->met[i];
    }
    o->change = root(square) / side;
    o->rate = o->change / T;
    o->error = root(square + part * (2 * s->met[0] + part * s->gram[0])) / (2 * side);
    int fits = o->error <= k->tolerance && side * o->change < longest && side * o->rate * o->C < longest;
    for (size_t i = 0; i < r->clients; i++) {
        double b = T / (o->L + T / s->G[i]), n = fmin(T / r->visitors[i].time, s->rho[i]);
        double own = s->gram[(i + 1) * (slots + 1)];
        double norm = b * root(square - n * (2 * s->met[i + 1] - n * own)) / side, error = norm / (2 * s->G[i]);
        fits = fits && error <= k->tolerance && side * norm + sqrt(r->visitors[i].square) < longest;
        o->error = fmax(o->error, error);
        o->clients[i].J = norm;
        for (size_t j = 0; j < slots; j++)
            s->J[i * slots + j] = (float)(b * s->x_c[j]);
        s->J[i * slots + i + 1] = (float)(b * s->x_c[i + 1] - b * n);
    }
    return fits; /* NaN is not */
}

/* The new centre, every new flow and their new sum; `rows` is room for F and all displacements. False if it has to be
 * computed otherwise. */
int fedecado_round(const struct knobs *k, const struct round *r, float *rows, struct outcome *o)
{
    struct scalars s;
    struct row of[SLOTS] = {{NULL, NULL, r->total}}, at[SLOTS];
    union {
        struct changes all;
        char room[sizeof(struct changes) + CLIENTS * sizeof(struct flow)];
    } to = {{r->clients, r->clients + 1, s.J, NULL, NULL, NULL, r->alone ? NULL : r->total, r->moved}};
    double room[CLIENTS * PLACES + SLOTS * WIDEST / 2];
    size_t a = r->clients, slots = a + 1;
    for (size_t i = 0; i < a; i++)
        of[i + 1] = (struct row){r->visitors[i].end, r->central, NULL};
    used->gather(of, slots, r->parameters, rows, s.gram);
    for (size_t i = 0; i < slots; i++) {
        at[i] = (struct row){rows + i * r->parameters, NULL, NULL};
        if (!(s.gram[i * (slots + 1)] < INFINITY))
            return 0;
    }
    for (size_t i = 0; i < a; i++) {
        o->clients[i].moved = s.gram[(i + 1) * (slots + 1)];
        s.length[i] = sqrt(o->clients[i].moved);
        s.stiff[i] = r->visitors[i].weight * r->visitors[i].curvature;
        to.all.flows[i] = (struct flow){r->visitors[i].before, r->visitors[i].after};
    }
    o->pace = answered(k, r, &s, &o->agreement);
    if (!build(k, r, &s, o) || !leap(k, r, &s, o))
        return 0;
    used->combine(at, slots, s.weights, 0, r->parameters, r->central, r->next);
    used->advance(at, slots, &to.all, 0, r->parameters, room);
    for (size_t i = 0; i < a; i++)
        o->clients[i].square = room[i * PLACES];
    return 1;
}
