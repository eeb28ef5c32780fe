/* bench_svg.c: charts as inline SVG, and escaped text. */
#include <float.h>

#include "server/bench.h"

#define CHART_WIDTH 420
#define CHART_HEIGHT 230
#define CHART_LEFT 52
#define CHART_RIGHT 8
#define CHART_TOP 26
#define CHART_BOTTOM 34
#define LEGEND_LINE 15
#define AXIS_STEPS 4
#define LABELS_ONE_LINE_MAX 6 /* more points: labels on two lines in turn */

static const char *const colours[] = {"#1f6feb", "#d1242f", "#1a7f37", "#9a6700",
                                      "#8250df", "#bf3989", "#57606a", "#0a7ea4"};

void bench_html_text(FILE *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
      case '&':
        fputs("&amp;", out);
        break;
      case '<':
        fputs("&lt;", out);
        break;
      case '>':
        fputs("&gt;", out);
        break;
      case '"':
        fputs("&quot;", out);
        break;
      case '\'':
        fputs("&#39;", out);
        break;
      default:
        fputc(*text, out);
    }
  }
}

int bench_chart_series(struct bench_chart *c, const char *name, bool dashed) {
  for (unsigned i = 0; i < c->series_count; i++)
    if (strcmp(c->series[i].name, name) == 0 && c->series[i].dashed == dashed) return (int)i;
  if (c->series_count == BENCH_SERIES_MAX) return -1;
  unsigned at = c->series_count++;
  c->series[at].name = name;
  c->series[at].dashed = dashed;
  for (unsigned p = 0; p < BENCH_POINTS_MAX; p++) c->series[at].value[p] = -1;
  return (int)at;
}

int bench_chart_point(struct bench_chart *c, const char *label) {
  for (unsigned i = 0; i < c->point_count; i++)
    if (strcmp(c->points[i], label) == 0) return (int)i;
  if (c->point_count == BENCH_POINTS_MAX) return -1;
  c->points[c->point_count] = label;
  return (int)c->point_count++;
}

void bench_chart_set(struct bench_chart *c, int series, int point, double value, double low,
                     double high) {
  if (series < 0 || point < 0) return;
  c->series[series].value[point] = value;
  c->series[series].low[point] = low;
  c->series[series].high[point] = high;
}

/* The least round number at or above the largest figure. */
static double chart_top(const struct bench_chart *c) {
  double most = 0, step = 1e-9;
  for (unsigned s = 0; s < c->series_count; s++)
    for (unsigned p = 0; p < c->point_count; p++)
      most = MAX(most, MAX(c->series[s].value[p], c->series[s].high[p]));
  if (!(most > 0) || most > DBL_MAX) return 1;
  while (step * 10 < most) step *= 10;
  for (unsigned n = 1; n <= 20; n++)
    if (step * n / 2 >= most) return step * n / 2;
  return step * 10;
}

static double chart_y(double value, double top) {
  return CHART_TOP + (CHART_HEIGHT - CHART_TOP - CHART_BOTTOM) * (1 - value / top);
}

static double chart_width_each(const struct bench_chart *c) {
  return (CHART_WIDTH - CHART_LEFT - CHART_RIGHT) / (double)MAX(c->point_count, 1u);
}

static void svg_begin(FILE *out, const struct bench_chart *c, double top) {
  unsigned height = CHART_HEIGHT + LEGEND_LINE * ((c->series_count + 1) / 2) + 4;
  fprintf(out, "<svg viewBox=\"0 0 %d %u\" role=\"img\"><text class=\"t\" x=\"%d\" y=\"15\">",
          CHART_WIDTH, height, CHART_LEFT);
  bench_html_text(out, c->title);
  fputs("</text>", out);
  for (unsigned i = 0; i <= AXIS_STEPS; i++) {
    double value = top * i / AXIS_STEPS, y = chart_y(value, top);
    fprintf(out,
            "<line class=\"g\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
            "<text class=\"a\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%.4g</text>",
            CHART_LEFT, CHART_WIDTH - CHART_RIGHT, y, y, CHART_LEFT - 4, y + 3, value);
  }
  fprintf(out, "<text class=\"a\" x=\"2\" y=\"15\">");
  bench_html_text(out, c->unit);
  fputs("</text>", out);
  double each = chart_width_each(c);
  for (unsigned p = 0; p < c->point_count; p++) {
    fprintf(out, "<text class=\"a\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">",
            CHART_LEFT + each * (p + 0.5),
            CHART_HEIGHT - CHART_BOTTOM + 12 +
                (c->point_count > LABELS_ONE_LINE_MAX && p % 2 ? 11 : 0));
    bench_html_text(out, c->points[p]);
    fputs("</text>", out);
  }
}

static void svg_end(FILE *out, const struct bench_chart *c) {
  for (unsigned s = 0; s < c->series_count; s++) {
    unsigned x = CHART_LEFT + (s % 2) * 180, y = CHART_HEIGHT + LEGEND_LINE * (s / 2);
    fprintf(out,
            "<line x1=\"%u\" x2=\"%u\" y1=\"%u\" y2=\"%u\" stroke=\"%s\" stroke-width=\"3\"%s/>"
            "<text class=\"a\" x=\"%u\" y=\"%u\">",
            x, x + 18, y, y, colours[s % ARRAY_LEN(colours)],
            c->series[s].dashed ? " stroke-dasharray=\"4 3\"" : "", x + 23, y + 4);
    bench_html_text(out, c->series[s].name);
    if (c->series[s].dashed) fputs(" (the other run)", out);
    fputs("</text>", out);
  }
  fputs("</svg>\n", out);
}

void bench_svg_lines(FILE *out, const struct bench_chart *c) {
  double top = chart_top(c), each = chart_width_each(c);
  svg_begin(out, c, top);
  for (unsigned s = 0; s < c->series_count; s++) {
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"",
            colours[s % ARRAY_LEN(colours)],
            c->series[s].dashed ? " stroke-dasharray=\"4 3\"" : "");
    for (unsigned p = 0; p < c->point_count; p++)
      if (c->series[s].value[p] >= 0)
        fprintf(out, "%.1f,%.1f ", CHART_LEFT + each * (p + 0.5),
                chart_y(c->series[s].value[p], top));
    fputs("\"/>", out);
    for (unsigned p = 0; p < c->point_count; p++) {
      if (c->series[s].value[p] < 0) continue;
      fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"><title>",
              CHART_LEFT + each * (p + 0.5), chart_y(c->series[s].value[p], top),
              colours[s % ARRAY_LEN(colours)]);
      bench_html_text(out, c->series[s].name);
      fprintf(out, ": %.4g</title></circle>", c->series[s].value[p]);
    }
  }
  svg_end(out, c);
}

void bench_svg_bars(FILE *out, const struct bench_chart *c) {
  double top = chart_top(c), each = chart_width_each(c);
  double wide = each * 0.8 / MAX(c->series_count, 1u);
  svg_begin(out, c, top);
  for (unsigned s = 0; s < c->series_count; s++) {
    for (unsigned p = 0; p < c->point_count; p++) {
      double value = c->series[s].value[p];
      if (value < 0) continue;
      double x = CHART_LEFT + each * (p + 0.1) + wide * s, y = chart_y(value, top);
      fprintf(out,
              "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s><title>", x,
              y, MAX(wide - 1, 0.5), MAX(chart_y(0, top) - y, 0.0), colours[s % ARRAY_LEN(colours)],
              c->series[s].dashed ? " fill-opacity=\"0.4\"" : "");
      bench_html_text(out, c->series[s].name);
      fprintf(out, ": %.4g</title></rect>", value);
      if (c->series[s].high[p] > c->series[s].low[p])
        fprintf(out, "<line class=\"w\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                x + wide / 2, x + wide / 2, chart_y(c->series[s].low[p], top),
                chart_y(c->series[s].high[p], top));
    }
  }
  svg_end(out, c);
}
