/* The passes of kernels.c for one set of instructions: VECTOR bytes at a time, names by LEVEL. */

/* As they lie in memory, at the address of any number. */
typedef float LEVEL(floats) __attribute__((vector_size(VECTOR), aligned(4), may_alias));
typedef float LEVEL(half) __attribute__((vector_size(VECTOR / 2), aligned(4), may_alias));
typedef double LEVEL(doubles) __attribute__((vector_size(VECTOR), aligned(8), may_alias));

#define FLOATS LEVEL(floats)
#define HALF LEVEL(half)
#define DOUBLES LEVEL(doubles)
#define LANES (VECTOR / 4)
/* Columns that are worked on in registers: two vectors, so that one is multiplied while the other still is. */
#define STEP (2 * LANES)

/* The same at any address, as within a message. */
typedef float LEVEL(loose) __attribute__((vector_size(VECTOR), aligned(1), may_alias));

/* Ask for a step's columns of a vector, which are needed soon. */
static inline void LEVEL(ask)(const float *columns)
{
    for (size_t j = 0; j < STEP; j += LINE)
        __builtin_prefetch(columns + j);
}

/* A step's columns of a row. */
static inline void LEVEL(load)(const struct row *row, size_t at, FLOATS out[2])
{
    if (row->wide) {
        const DOUBLES *wide = (const DOUBLES *)(row->wide + at);
        for (int h = 0; h < 4; h++)
            ((HALF *)out)[h] = __builtin_convertvector(wide[h], HALF);
        return;
    }
    const FLOATS *vector = (const FLOATS *)(row->vector + at);
    out[0] = vector[0];
    out[1] = vector[1];
    if (row->less) {
        const FLOATS *less = (const FLOATS *)(row->less + at);
        out[0] -= less[0];
        out[1] -= less[1];
    }
}

/* Add the squares of a step's columns to sums that have a place for each of them. Every squared length is taken this
 * way, and so has the same bits whether it is kept from when a vector was written or taken again. */
static inline void LEVEL(square)(const float *columns, DOUBLES sums[4])
{
    for (size_t h = 0; h < 4; h++) {
        DOUBLES wide = __builtin_convertvector(((const HALF *)columns)[h], DOUBLES);
        sums[h] += wide * wide;
    }
}

/* What the places come to; more than float32 holds counts as infinite, since products of such vectors are. */
static inline double LEVEL(added)(const DOUBLES sums[4])
{
    double sum = 0;
    for (size_t j = 0; j < STEP; j++)
        sum += sums[j / (LANES / 2)][j % (LANES / 2)];
    return sum > FLT_MAX ? INFINITY : sum;
}

/* Squared length of some columns of a row, which are written to `out` if that is given. Those that were picked for
 * the sample are written there, one behind the other. */
static double LEVEL(measure)(const struct row *row, size_t from, size_t to, float *out, const struct sample *sample)
{
    DOUBLES sums[4] = {{0}, {0}, {0}, {0}};
    float now[STEP];
    size_t at = from, drawn = 0;
    while (at + STEP <= to) {
        size_t end = to - at < WIDEST ? to : at + WIDEST;
        for (; at + STEP <= end; at += STEP) {
            if (row->vector)
                LEVEL(ask)(row->vector + at + AHEAD);
            if (row->less)
                LEVEL(ask)(row->less + at + AHEAD);
            LEVEL(load)(row, at, (FLOATS *)now);
            if (out)
                memcpy(out + at, now, sizeof now);
            LEVEL(square)(now, sums);
        }
        for (; drawn < sample->count && (size_t)sample->picked[drawn] < at; drawn++)
            sample->out[drawn] = one(row, (size_t)sample->picked[drawn]);
    }
    if (at < to) {
        memset(now, 0, sizeof now);
        for (size_t j = 0; j < to - at; j++)
            now[j] = one(row, at + j);
        if (out)
            memcpy(out + at, now, (to - at) * sizeof(float));
        LEVEL(square)(now, sums);
    }
    for (; drawn < sample->count; drawn++)
        sample->out[drawn] = one(row, (size_t)sample->picked[drawn]);
    return LEVEL(added)(sums);
}

/* Copy numbers to where they stay, past the caches, which what comes in next has for itself then; their squared
 * length, in float32 within a tile. */
static double LEVEL(take)(const char *source, float *place, size_t count)
{
    double square = 0;
    size_t at = 0;
    float now;
    for (; at < count && (uintptr_t)(place + at) % VECTOR; at++) {
        memcpy(&now, source + 4 * at, sizeof now);
        place[at] = now;
        square += (double)(now * now);
    }
    while (at + STEP <= count) {
        size_t end = count - at < WIDEST ? count : at + WIDEST;
        FLOATS lanes[2] = {{0}, {0}};
        for (; at + STEP <= end; at += STEP) {
            const LEVEL(loose) *from = (const LEVEL(loose) *)(source + 4 * at);
            FLOATS first = from[0], second = from[1];
            STREAM(place + at, first);
            STREAM(place + at + LANES, second);
            lanes[0] += first * first;
            lanes[1] += second * second;
        }
        lanes[0] += lanes[1];
        for (int lane = 0; lane < LANES; lane++)
            square += lanes[0][lane];
    }
    for (; at < count; at++) {
        memcpy(&now, source + 4 * at, sizeof now);
        place[at] = now;
        square += (double)(now * now);
    }
    FENCE();
    return square;
}

/* The inner product of some columns of two rows: in float32, for there are few of them. */
static inline double LEVEL(dot)(const float *row, const float *other, size_t n)
{
    FLOATS first = {0}, second = {0};
    size_t j = 0;
    for (; j + STEP <= n; j += STEP) {
        first += *(const FLOATS *)(row + j) * *(const FLOATS *)(other + j);
        second += *(const FLOATS *)(row + j + LANES) * *(const FLOATS *)(other + j + LANES);
    }
    first += second;
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++)
        sum += first[lane];
    for (; j < n; j++)
        sum += (double)(row[j] * other[j]);
    return sum;
}

/* Short rows, written down one behind the other, and the inner products of all of them. */
static void LEVEL(gather)(const struct row *rows, size_t count, size_t size, float *out, double *products)
{
    memset(products, 0, count * count * sizeof(double));
    for (size_t at = 0; at < size; at += WIDEST) {
        size_t n = size - at < WIDEST ? size - at : WIDEST;
        for (size_t i = 0; i < count; i++) {
            float *row = out + i * size + at;
            size_t j = 0;
            for (; j + STEP <= n; j += STEP)
                LEVEL(load)(rows + i, at + j, (FLOATS *)(row + j));
            for (; j < n; j++)
                row[j] = one(rows + i, at + j);
            for (size_t k = 0; k <= i; k++)
                products[i * count + k] += LEVEL(dot)(row, out + k * size + at, n);
        }
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            products[k * count + i] = products[i * count + k];
}

/* The rows' weighted sum, added to `onto` if that is given. */
static void LEVEL(combine)(const struct row *rows, size_t count, const float *weights, size_t from, size_t to,
                           const float *onto, float *out)
{
    size_t at = from;
    for (; at + STEP <= to; at += STEP) {
        FLOATS sum[2] = {{0}, {0}};
        for (size_t k = 0; k < count; k++) {
            FLOATS row[2];
            if (rows[k].vector)
                LEVEL(ask)(rows[k].vector + at + AHEAD);
            LEVEL(load)(rows + k, at, row);
            sum[0] += weights[k] * row[0];
            sum[1] += weights[k] * row[1];
        }
        if (onto) {
            const FLOATS *base = (const FLOATS *)(onto + at);
            sum[0] += base[0];
            sum[1] += base[1];
        }
        memcpy(out + at, sum, sizeof sum);
    }
    for (; at < to; at++) {
        float sum = 0;
        for (size_t k = 0; k < count; k++)
            sum += weights[k] * one(rows + k, at);
        out[at] = onto ? onto[at] + sum : sum;
    }
}

/* Rows written down for a tile. Whole steps are computed later on, so the last one is filled up. */
static void LEVEL(form)(const struct row *rows, size_t count, size_t at, size_t n, size_t wide, float *room)
{
    for (size_t k = 0; k < count; k++, room += wide) {
        size_t j = 0;
        for (; j + STEP <= n; j += STEP)
            LEVEL(load)(rows + k, at + j, (FLOATS *)(room + j));
        for (; j < n; j++)
            room[j] = one(rows + k, at + j);
        for (; j % STEP; j++)
            room[j] = 0;
    }
}

/* The weighted sum of a tile's rows, in one step's columns. */
static inline void LEVEL(mix)(const float *weights, size_t count, const float *rows, size_t wide, FLOATS sum[2])
{
    FLOATS first = {0}, second = {0};
    for (size_t k = 0; k < count; k++, rows += wide) {
        first += weights[k] * *(const FLOATS *)rows;
        second += weights[k] * *(const FLOATS *)(rows + LANES);
    }
    sum[0] = first;
    sum[1] = second;
}

/* What a client's vector becomes in one step's columns, and what that adds to the sums. */
static inline void LEVEL(move)(const float *before, int alone, const FLOATS by[2], float *after, double *sums)
{
    for (size_t v = 0; v < 2; v++, after += LANES) {
        HALF was[2] = {{0}, {0}};
        FLOATS now = by[v];
        if (before) { /* which may be where `after` is */
            was[0] = *(const HALF *)before;
            was[1] = *(const HALF *)(before + LANES / 2);
            now += *(const FLOATS *)before;
            before += LANES;
        }
        *(FLOATS *)after = now;
        for (size_t h = 0; h < 2; h++, sums += LANES / 2) {
            DOUBLES change = __builtin_convertvector(*(const HALF *)(after + h * LANES / 2), DOUBLES);
            if (before && !alone)
                change -= __builtin_convertvector(was[h], DOUBLES);
            *(DOUBLES *)sums += change;
        }
    }
}

/* The same for a tile: client i of `c`, from the rows of the tile and from what clients share of them. */
static void LEVEL(move_tile)(const struct changes *c, size_t i, const struct tile *t, const float *before,
                             float *after, const float *next, double *squares)
{
    DOUBLES sums[4];
    memcpy(sums, squares, sizeof sums);
    const float *shares = c->shares + i * c->width, *own = c->own ? c->own + 2 * i : NULL;
    for (size_t j = 0; j < t->columns; j += STEP) {
        /* The next tile's columns: so many vectors at once are more than the processor foresees by itself. */
        if (before)
            LEVEL(ask)(before + t->wide + j);
        if (next)
            LEVEL(ask)(next + t->wide + j);
        FLOATS by[2];
        LEVEL(mix)(shares, c->width, t->shared + j, t->apart, by);
        for (size_t o = 0; own && o < 2 && c->slots[2 * i + o] >= 0; o++) {
            const float *row = t->rows + (size_t)c->slots[2 * i + o] * t->row_apart + j;
            by[0] += own[o] * *(const FLOATS *)row;
            by[1] += own[o] * *(const FLOATS *)(row + LANES);
        }
        size_t left = t->columns - j;
        if (left >= STEP) {
            LEVEL(move)(before ? before + j : NULL, t->alone, by, after + j, t->sums + j);
            LEVEL(square)(after + j, sums);
        } else { /* what lies behind the last columns is not ours */
            float was[STEP] = {0}, now[STEP];
            if (before)
                memcpy(was, before + j, left * sizeof(float));
            LEVEL(move)(before ? was : NULL, t->alone, by, now, t->sums + j);
            LEVEL(square)(now, sums);
            memcpy(after + j, now, left * sizeof(float));
        }
    }
    memcpy(squares, sums, sizeof sums);
}

/* Every vector and its combination of the rows, and what that makes of the sum of all vectors. `room` begins with
 * PLACES numbers per client, of which the first is its squared length in the end. */
static void LEVEL(advance)(const struct row *rows, size_t count, const struct changes *c, size_t from, size_t to,
                           double *room)
{
    size_t wide = fitting(count + (c->factors ? c->width : 0)), spaced = spacing(rows, count);
    double sums[WIDEST], *squares = room;
    float *formed = (float *)(room + c->clients * PLACES), *products = formed + count * wide;
    memset(squares, 0, c->clients * PLACES * sizeof(double));
    for (size_t at = from; at < to; at += wide) {
        size_t n = to - at < wide ? to - at : wide;
        struct tile t = {n, wide, formed, wide, formed, wide, sums, !c->total};
        if (spaced && n == wide) {
            t.rows = t.shared = rows->vector + at;
            t.row_apart = t.apart = spaced;
        } else {
            LEVEL(form)(rows, count, at, n, wide, formed);
        }
        if (c->factors) {
            for (size_t k = 0; k < c->width; k++)
                for (size_t j = 0; j < n; j += STEP)
                    LEVEL(mix)(c->factors + k * count, count, t.rows + j, t.row_apart,
                               (FLOATS *)(products + k * wide + j));
            t.shared = products;
            t.apart = wide;
        }
        memset(sums, 0, sizeof sums);
        if (c->total)
            memcpy(sums, c->total + at, n * sizeof(double));
        for (size_t i = 0; i < c->clients; i++) {
            const float *before = c->flows[i].before, *next = i < count ? rows[count - 1 - i].vector : NULL;
            LEVEL(move_tile)(c, i, &t, before ? before + at : NULL, c->flows[i].after + at, next ? next + at : NULL,
                             squares + i * PLACES);
        }
        memcpy(c->moved + at, sums, n * sizeof(double));
    }
    for (size_t i = 0; i < c->clients; i++)
        squares[i * PLACES] = LEVEL(added)((const DOUBLES *)(squares + i * PLACES));
}

#undef FLOATS
#undef HALF
#undef DOUBLES
#undef LANES
#undef STEP
