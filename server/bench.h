/* bench.h: what the files of `kofn bench` share: options, statistics, progress, and the page.
 *
 *   cmd_bench -> options -> bench_codec_run / bench_system_run -> JSON document -> text, page
 *
 * A benchmark fills one JSON document; the page and the comparison with an earlier run are made
 * from such documents alone. */
#ifndef KOFN_SERVER_BENCH_H
#define KOFN_SERVER_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "config/base.h"

#define BENCH_ROUNDS_MAX 99
#define BENCH_LIST_MAX 64
#define BENCH_WHY_BYTES 256

/* ---- options (bench_options.c) ---- */

struct bench_texts {
  const char *at[BENCH_LIST_MAX];
  unsigned count;
};
struct bench_numbers {
  uint64_t at[BENCH_LIST_MAX];
  unsigned count;
};

enum bench_option_kind {
  BENCH_FLAG,    /* bool */
  BENCH_NUMBER,  /* uint64_t within min..max */
  BENCH_SIZE,    /* uint64_t in bytes, within min..max: 4096, 64KiB, 1MiB */
  BENCH_TEXT,    /* const char * */
  BENCH_TEXTS,   /* struct bench_texts: may be repeated, and separated by commas */
  BENCH_NUMBERS, /* struct bench_numbers, likewise */
  BENCH_SIZES,   /* struct bench_numbers in bytes */
};

struct bench_option {
  const char *name; /* without "--" */
  char letter;      /* 0: none */
  enum bench_option_kind kind;
  size_t offset; /* in the struct that is filled */
  uint64_t min, max;
};

/* Fills `into` from argv[1..]; the table ends with a NULL name. What is given replaces what
 * `into` held before. ERR_INVALID with words in `why`. The texts stay argv's, whose commas are
 * replaced by NULs. */
_must_check_ int bench_options_parse(const struct bench_option *table, int argc, char **argv,
                                     void *into, char why[BENCH_WHY_BYTES]);

/* The first text of the list that is not one of `allowed` (NULL at its end), or NULL. */
const char *bench_texts_stranger(const struct bench_texts *list, const char *const *allowed);
bool bench_texts_has(const struct bench_texts *list, const char *name);

/* ---- statistics (bench_stats.c) ---- */

struct bench_spread {
  double median, min, max;
};

/* n >= 1; `values` are left as they are. */
struct bench_spread bench_spread_of(const double *values, unsigned n);
/* {"median", "min", "max"}. */
json_t *bench_spread_json(struct bench_spread s);

/* The chance, two-sided, that of n fair coins at least `wins` (or at most n - wins) fall alike. */
double bench_sign_test(unsigned wins, unsigned n);

/* Below this chance a difference is called one. */
#define BENCH_CHANCE_MAX 0.05
/* Fewer paired rounds can show nothing: six that all fall alike have a chance of 0.03. */
#define BENCH_ROUNDS_TO_JUDGE 6

/* `a` against `base` in paired rounds: what may be said of the difference. */
struct bench_verdict {
  double ratio;  /* median of the ratios of the rounds */
  double chance; /* of the sign test */
  unsigned higher, lower;
  bool overlap;   /* the ranges of a and base overlap */
  bool different; /* the sign test says so, and a median lies outside the other's range */
};
struct bench_verdict bench_compare(const double *a, const double *base, unsigned n);
/* "1.04 of isal in time; 5 of 6 rounds higher, the ranges overlap: inside the noise". */
void bench_verdict_words(const struct bench_verdict *v, unsigned n, const char *base,
                         const char *what, char *out, size_t cap);

/* ---- progress and time (bench_stats.c) ---- */

uint64_t bench_now_ns(void);    /* CLOCK_MONOTONIC */
uint64_t bench_thread_ns(void); /* the calling thread's CPU time */
void bench_pause_ms(unsigned ms);
/* One line on standard error that replaces the last one; nothing unless that is a terminal. */
void bench_progress(const char *fmt, ...) _printf_(1, 2);
/* Writes what is wrong with an option into why[BENCH_WHY_BYTES]; returns ERR_INVALID. */
int bench_refuse(char *why, const char *fmt, ...) _printf_(2, 3);
void bench_progress_end(void);

/* SIGINT and SIGTERM set this; every loop of a benchmark looks at it. */
extern volatile int bench_stop;
void bench_catch_signals(void);

/* What the figures were taken on: cores, CPU, caches, kernel, load. */
json_t *bench_machine(void);

/* ---- files (bench_page.c) ---- */

/* A document of the same kind ("codec", "system"), or ERR_INVALID with words. */
_must_check_ int bench_load_json(const char *path, const char *kind, json_t **ret_doc,
                                 char why[BENCH_WHY_BYTES]);
/* Prints what went wrong. */
_must_check_ int bench_save_json(const char *path, const json_t *doc);
/* Writes the page of a document; `against` may be NULL. Prints what went wrong. */
_must_check_ int bench_save_page(const char *path, const json_t *doc, const json_t *against);

/* ---- making pages (bench_svg.c) ---- */

#define BENCH_SERIES_MAX 16
#define BENCH_POINTS_MAX 40

/* A chart of up to BENCH_SERIES_MAX series over the same points. */
struct bench_chart {
  const char *title, *unit;
  const char *points[BENCH_POINTS_MAX]; /* labels along the x axis */
  unsigned point_count;
  struct {
    const char *name;
    bool dashed;                                          /* of the other run */
    double value[BENCH_POINTS_MAX];                       /* < 0: no figure */
    double low[BENCH_POINTS_MAX], high[BENCH_POINTS_MAX]; /* whiskers where high > low */
  } series[BENCH_SERIES_MAX];
  unsigned series_count;
};

/* The place of the series of this name, made where it is new; -1 where the chart is full. */
int bench_chart_series(struct bench_chart *c, const char *name, bool dashed);
int bench_chart_point(struct bench_chart *c, const char *label);
void bench_chart_set(struct bench_chart *c, int series, int point, double value, double low,
                     double high);
void bench_svg_lines(FILE *out, const struct bench_chart *c);
void bench_svg_bars(FILE *out, const struct bench_chart *c);
/* Text with &, <, > and quotes escaped. */
void bench_html_text(FILE *out, const char *text);

/* The body of each kind's page. */
void bench_page_codec(FILE *out, const json_t *doc, const json_t *against);
void bench_page_system(FILE *out, const json_t *doc, const json_t *against);

/* "4 KiB", "64 MiB". */
const char *bench_size_words(uint64_t bytes, char out[32]);

#endif
