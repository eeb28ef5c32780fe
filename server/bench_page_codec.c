/* bench_page_codec.c: the page of `kofn bench codec`: for each technique and (k,m) the speed over
 * the object's size, and the tables of the kernels. */
#include <stdlib.h>

#include "server/bench.h"

#define LABEL_BYTES 64
#define NAMES_MAX 512

/* Strings that charts borrow. */
struct names {
  char text[NAMES_MAX][LABEL_BYTES];
  unsigned count;
};

static const char *names_add(struct names *n, const char *text) {
  for (unsigned i = 0; i < n->count; i++)
    if (strcmp(n->text[i], text) == 0) return n->text[i];
  if (n->count == NAMES_MAX) return "";
  snprintf(n->text[n->count], LABEL_BYTES, "%s", text);
  return n->text[n->count++];
}

static long long number(const json_t *o, const char *name) {
  return (long long)json_integer_value(json_object_get(o, name));
}

static const char *text(const json_t *o, const char *name) {
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "";
}

static double part(const json_t *o, const char *spread, const char *name) {
  return json_number_value(json_object_get(json_object_get(o, spread), name));
}

/* Which chart a cell belongs to. */
static void chart_title(const json_t *cell, char out[LABEL_BYTES]) {
  if (strcmp(text(cell, "workload"), "decode") == 0)
    snprintf(out, LABEL_BYTES, "%.16s %lld+%lld decode, %lld lost", text(cell, "technique"),
             number(cell, "k"), number(cell, "m"), number(cell, "erasures"));
  else
    snprintf(out, LABEL_BYTES, "%.16s %lld+%lld encode", text(cell, "technique"), number(cell, "k"),
             number(cell, "m"));
}

/* Sizes along the axis in rising order, whatever the order of the cells. */
static void chart_points(struct bench_chart *c, const json_t *cells, const char *title,
                         struct names *names) {
  for (uint64_t size = 1; size <= UINT64_C(1) << 40;) {
    uint64_t next = 0;
    size_t i;
    json_t *cell;
    json_array_foreach(cells, i, cell) {
      char words[32], found[LABEL_BYTES];
      uint64_t bytes = (uint64_t)number(cell, "size");
      chart_title(cell, found);
      if (strcmp(found, title) != 0) continue;
      if (bytes == size) bench_chart_point(c, names_add(names, bench_size_words(bytes, words)));
      if (bytes > size && (!next || bytes < next)) next = bytes;
    }
    if (!next) break;
    size = next;
  }
}

static void chart_fill(struct bench_chart *c, const json_t *cells, const char *title, bool other,
                       struct names *names) {
  size_t i;
  json_t *cell;
  json_array_foreach(cells, i, cell) {
    char found[LABEL_BYTES], words[32], series[LABEL_BYTES];
    chart_title(cell, found);
    if (strcmp(found, title) != 0) continue;
    /* The other run: kofn's own lines are what is compared. */
    if (other && strcmp(text(cell, "plugin"), "isa") != 0) continue;
    snprintf(series, sizeof series, "%.24s, %.8s, %lld thr.", text(cell, "plugin"),
             text(cell, "cache"), number(cell, "threads"));
    bench_size_words((uint64_t)number(cell, "size"), words);
    bench_chart_set(c, bench_chart_series(c, names_add(names, series), other),
                    bench_chart_point(c, names_add(names, words)), part(cell, "gb_s", "median"),
                    part(cell, "gb_s", "min"), part(cell, "gb_s", "max"));
  }
}

static void page_charts(FILE *out, const json_t *doc, const json_t *against) {
  const json_t *cells = json_object_get(doc, "cells");
  struct names *titles = calloc(1, sizeof *titles);
  size_t i;
  json_t *cell;
  if (!titles) return;
  fputs("<h2>Encode and decode, GB/s of object bytes by the CPU clock</h2><section>\n", out);
  json_array_foreach(cells, i, cell) {
    char title[LABEL_BYTES];
    unsigned before = titles->count;
    chart_title(cell, title);
    const char *name = names_add(titles, title);
    if (titles->count == before) continue;
    struct names *names = calloc(1, sizeof *names);
    struct bench_chart *c = calloc(1, sizeof *c);
    if (names && c) {
      c->title = name;
      c->unit = "GB/s";
      chart_points(c, cells, title, names);
      chart_fill(c, cells, title, false, names);
      chart_fill(c, json_object_get(against, "cells"), title, true, names);
      bench_svg_lines(out, c);
    }
    free(c);
    free(names);
  }
  fputs("</section>\n", out);
  free(titles);
}

/* A table whose columns are the members of each row's object `figures`. */
static void page_table(FILE *out, const json_t *rows, const char *const *columns,
                       const char *figures, const char *ratio) {
  size_t i;
  json_t *row, *figure;
  const char *name;
  if (json_array_size(rows) == 0) return;
  fputs("<table><tr>", out);
  for (const char *const *c = columns; *c; c++) fprintf(out, "<th>%s</th>", *c);
  json_object_foreach(json_object_get(json_array_get(rows, 0), figures), name, figure) {
    fputs("<th>", out);
    bench_html_text(out, name);
    fputs("</th>", out);
  }
  if (ratio) fprintf(out, "<th>%s</th>", ratio);
  fputs("</tr>\n", out);
  json_array_foreach(rows, i, row) {
    fputs("<tr>", out);
    for (const char *const *c = columns; *c; c++) {
      const json_t *value = json_object_get(row, *c);
      fputs("<td>", out);
      if (json_is_string(value))
        bench_html_text(out, json_string_value(value));
      else
        fprintf(out, "%lld", (long long)json_integer_value(value));
      fputs("</td>", out);
    }
    json_object_foreach(json_object_get(row, figures), name, figure)
        fprintf(out, "<td>%.4g</td>", json_number_value(json_object_get(figure, "median")));
    if (ratio)
      fprintf(out, "<td>%.3f (%.3f to %.3f)</td>", part(row, ratio, "median"),
              part(row, ratio, "min"), part(row, ratio, "max"));
    fputs("</tr>\n", out);
  }
  fputs("</table>\n", out);
}

static void page_crc_chart(FILE *out, const json_t *rows) {
  struct bench_chart *c = calloc(1, sizeof *c);
  struct names *names = calloc(1, sizeof *names);
  size_t i;
  json_t *row, *figure;
  const char *name;
  if (c && names && json_array_size(rows) > 0) {
    c->title = "CRC32C: time of one call";
    c->unit = "ns";
    json_array_foreach(rows, i, row) {
      char words[32];
      int point = bench_chart_point(
          c, names_add(names, bench_size_words((uint64_t)number(row, "bytes"), words)));
      json_object_foreach(json_object_get(row, "ns"), name, figure) {
        if (strcmp(name, "table") == 0) continue; /* ten times slower: it would hide the others */
        bench_chart_set(c, bench_chart_series(c, names_add(names, name), false), point,
                        json_number_value(json_object_get(figure, "median")), 0, 0);
      }
    }
    fputs("<section>", out);
    bench_svg_lines(out, c);
    fputs("</section>\n", out);
  }
  free(names);
  free(c);
}

void bench_page_codec(FILE *out, const json_t *doc, const json_t *against) {
  static const char *const crc[] = {"bytes", "chosen", NULL};
  static const char *const passes[] = {"k", "m", "unit", "cache", NULL};
  static const char *const kernels[] = {"sources", "bytes", "cache", "chosen", NULL};
  page_charts(out, doc, against);
  if (json_object_get(doc, "crc32c")) {
    fputs("<h2>CRC32C, ns a call</h2>\n", out);
    page_crc_chart(out, json_object_get(doc, "crc32c"));
    page_table(out, json_object_get(doc, "crc32c"), crc, "ns", NULL);
  }
  if (json_object_get(doc, "encode_crc")) {
    fputs("<h2>Encode and CRC32C, ns a stripe</h2>\n", out);
    page_table(out, json_object_get(doc, "encode_crc"), passes, "ns", "crc_costs_of_encode");
  }
  if (json_object_get(doc, "xor")) {
    fputs("<h2>XOR kernels, GB/s of source bytes</h2>\n", out);
    page_table(out, json_object_get(doc, "xor"), kernels, "gb_s", "chosen_over_isal");
  }
}
