/* The passes over long vectors, each of which reads and writes what it touches once.
 *
 * passes.h has the code. It is compiled here for every set of instructions, and `fedecado_use` picks one; round.h
 * makes whole rounds of short vectors with it. Python hands over plain addresses; `__init__.py` sees to it that there
 * is what the functions expect. Nothing is allocated here, no thread is started and nothing is kept between calls.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Of the functions below: Python does not use a library of another revision. */
#define REVISION 3

/* Columns of a tile, whose rows stay in cache while every result is formed from them. */
#define WIDEST 512
#define NARROWEST 64
/* Numbers of a tile, whatever the number of its rows. */
#define TILE 32768
/* Numbers in a line of the cache, and how far ahead they are asked for. */
#define LINE 16
#define AHEAD 512

/* Columns of the longest step, which squares have a place for each. */
#define PLACES 32

/* A vector; its difference from `less`, if that is given; or `wide`, rounded. */
struct row {
    const float *vector;
    const float *less;
    const double *wide;
};

/* Columns that are drawn, in ascending order, and where to write what is found there. */
struct sample {
    size_t count;
    const intptr_t *picked;
    float *out;
};

/* A client's vector, or nothing for zero, and where to write what comes after it, which may be the same place. */
struct flow {
    const float *before;
    float *after;
};

/* A combination of the rows per client: `shares` of all rows, or with `factors` of `width` products of these with
 * the rows. If `own` is given, so much of up to two rows more; their `slots` end with -1. And the sum of all
 * clients' vectors, or nothing if there are no others, where to write what comes after it, and every client's. */
struct changes {
    size_t clients;
    size_t width;
    const float *shares;
    const float *factors;
    const float *own;
    const intptr_t *slots;
    const double *total;
    double *moved;
    struct flow flows[];
};

/* Some columns, while they are worked on: rows, and what clients share of them, each so many numbers `apart`. */
struct tile {
    size_t columns;
    size_t wide;
    const float *rows;
    size_t row_apart;
    const float *shared;
    size_t apart;
    double *sums;
    int alone;
};

/* Columns of a tile with so many rows. */
static size_t fitting(size_t rows)
{
    size_t columns = TILE / (rows ? rows : 1) / NARROWEST * NARROWEST;
    return columns < NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns;
}

/* How far apart rows are that lie one behind the other as they are; 0 for others. */
static size_t spacing(const struct row *rows, size_t count)
{
    if (count < 2 || rows[1].vector <= rows[0].vector)
        return 0;
    size_t apart = (size_t)(rows[1].vector - rows[0].vector);
    for (size_t k = 0; k < count; k++)
        if (rows[k].less || rows[k].wide || rows[k].vector != rows[0].vector + k * apart)
            return 0;
    return apart;
}

static float one(const struct row *row, size_t at)
{
    if (row->wide)
        return (float)row->wide[at];
    return row->less ? row->vector[at] - row->less[at] : row->vector[at];
}

#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif
#define VECTOR 64
#define STREAM(place, numbers) _mm512_stream_ps(place, (__m512)(numbers))
#define FENCE() _mm_sfence()
#define LEVEL(name) name##_avx512
#include "passes.h"
#undef VECTOR
#undef LEVEL
#undef STREAM
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define VECTOR 32
#define STREAM(place, numbers) _mm256_stream_ps(place, (__m256)(numbers))
#define LEVEL(name) name##_avx2
#include "passes.h"
#undef VECTOR
#undef LEVEL
#undef STREAM
#undef FENCE
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define VECTOR 16
#define STREAM(place, numbers) (*(FLOATS *)(place) = (numbers))
#define FENCE()
#define LEVEL(name) name##_plain
#include "passes.h"

static const struct {
    double (*take)(const char *, float *, size_t);
    double (*measure)(const struct row *, size_t, size_t, float *, const struct sample *);
    void (*gather)(const struct row *, size_t, size_t, float *, double *);
    void (*combine)(const struct row *, size_t, const float *, size_t, size_t, const float *, float *);
    void (*advance)(const struct row *, size_t, const struct changes *, size_t, size_t, double *);
} levels[] = {
    {take_plain, measure_plain, gather_plain, combine_plain, advance_plain},
#ifdef __x86_64__
    {take_avx2, measure_avx2, gather_avx2, combine_avx2, advance_avx2},
    {take_avx512, measure_avx512, gather_avx512, combine_avx512, advance_avx512},
#endif
}, *used = levels;

int fedecado_revision(void) { return REVISION; }

/* How many sets of instructions this processor has of those that there is code for. */
int fedecado_levels(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 1;
    return 2 + (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
#else
    return 1;
#endif
}

void fedecado_use(int level) { used = levels + level; }

/* Numbers of the `room` that `fedecado_advance` needs, for so many rows and products of them. */
size_t fedecado_room(size_t rows, size_t clients)
{
    return clients * PLACES + (rows * fitting(rows) + 1) / 2;
}

double fedecado_take(const char *source, float *place, size_t count) { return used->take(source, place, count); }

double fedecado_measure(const struct row *row, size_t from, size_t to, float *out, const struct sample *sample)
{
    return used->measure(row, from, to, out, sample);
}

void fedecado_combine(const struct row *rows, size_t count, const float *weights, size_t from, size_t to,
                      const float *onto, float *out)
{
    used->combine(rows, count, weights, from, to, onto, out);
}

void fedecado_gather(const struct row *rows, size_t count, size_t size, float *out, double *products)
{
    used->gather(rows, count, size, out, products);
}

void fedecado_advance(const struct row *rows, size_t count, const struct changes *changes, size_t from, size_t to,
                      double *room)
{
    used->advance(rows, count, changes, from, to, room);
}

#include "round.h"
