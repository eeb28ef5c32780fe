/* settings_yaml.c: a YAML document into raw values, by the schema's names.
 *
 * libyaml's document API: yaml_parser_load makes a tree whose nodes keep their lines. The tree is
 * walked along the schema, at most four levels deep, so an alias that contains itself ends as a
 * value of the wrong type. */
#include <errno.h>
#include <stdio.h>
#include <yaml.h>

#include "config/err.h"
#include "config/settings_schema.h"

#define YAML_DEPTH_MAX 16 /* a file of ours has five levels */
#define YAML_ANCHORS_MAX 64

static const char *node_kind(const yaml_node_t *n) {
  return n->type == YAML_MAPPING_NODE    ? "a mapping"
         : n->type == YAML_SEQUENCE_NODE ? "a list"
                                         : "a value";
}

static int node_line(const yaml_node_t *n) {
  return (int)n->start_mark.line + 1;
}

struct walk {
  struct raw *raw;
  yaml_document_t *doc;
};

/* The known names, for whoever mistyped one. */
static int refuse_unknown(struct walk *w, const struct place *p) {
  char known[512] = "";
  size_t len = 0;
  const struct field *f;
  for (unsigned i = 0; (f = schema_field_at(p->section, i)) != NULL && len < sizeof known; i++) {
    len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", f->name);
  }
  for (unsigned s = 0; p->section == SECTION_TOP && s < SECTION_COUNT && len < sizeof known; s++) {
    if (s == SECTION_TOP || schema_sections[s].parent != SECTION_TOP) continue;
    len += (size_t)snprintf(known + len, sizeof known - len, ", %s", schema_sections[s].name);
  }
  return schema_refuse(w->raw, p, "unknown field (known: %s)", known);
}

static int set_scalar(struct walk *w, const struct field *f, struct place p,
                      const yaml_node_t *node, struct raw_value *value) {
  char range[SCHEMA_RANGE_BYTES_MAX];
  schema_range(f, range);
  p.field = f->name;
  p.line = node_line(node);
  if (node->type != YAML_SCALAR_NODE) {
    return schema_refuse(w->raw, &p, "must be a value (%s), not %s", range, node_kind(node));
  }
  const char *text = (const char *)node->data.scalar.value;
  size_t len = node->data.scalar.length;
  if (strlen(text) != len) return schema_refuse(w->raw, &p, "holds a NUL byte (%s)", range);
  return raw_set(value, text, len, p.line, NULL) < 0 ? schema_no_memory(w->raw) : 0;
}

/* Fields of one mapping. A list field's node is left in *ret_list for the caller. `seen` holds the
 * lines of the fields that were there. */
static int read_mapping(struct walk *w, struct place p, const yaml_node_t *node,
                        struct raw_item *item, const yaml_node_t **ret_list) {
  int seen[SCHEMA_SECTION_FIELDS_MAX] = {0};
  for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
       pair++) {
    const yaml_node_t *key = yaml_document_get_node(w->doc, pair->key);
    const yaml_node_t *value = yaml_document_get_node(w->doc, pair->value);
    p.line = node_line(key);
    p.field = NULL;
    if (key->type != YAML_SCALAR_NODE) {
      return schema_refuse(w->raw, &p, "a field's name must be a word, not %s", node_kind(key));
    }
    p.field = (const char *)key->data.scalar.value;
    int at = schema_field_find(p.section, p.field, key->data.scalar.length);
    if (at < 0) return refuse_unknown(w, &p);
    if (seen[at]) return schema_refuse(w->raw, &p, "given twice (first in line %d)", seen[at]);
    seen[at] = p.line;
    const struct field *f = schema_field_at(p.section, (unsigned)at);
    if (f->type == FIELD_LIST) {
      if (value->type != YAML_SEQUENCE_NODE) {
        return schema_refuse(w->raw, &p, "must be a list (of %u to %u), not %s", (unsigned)f->min,
                             (unsigned)f->max, node_kind(value));
      }
      *ret_list = value;
      continue;
    }
    int err = set_scalar(w, f, p, value, &item->values[at]);
    if (err < 0) return err;
  }
  return 0;
}

/* One item of a list: a mapping, or the scalar that stands for one of its fields. */
static int read_item(struct walk *w, struct place p, const yaml_node_t *node, struct raw_item *item,
                     const yaml_node_t **ret_list) {
  const char *shorthand = schema_sections[p.section].shorthand;
  if (node->type == YAML_MAPPING_NODE) return read_mapping(w, p, node, item, ret_list);
  if (node->type == YAML_SCALAR_NODE && shorthand) {
    int at = schema_field_find(p.section, shorthand, strlen(shorthand));
    return set_scalar(w, schema_field_at(p.section, (unsigned)at), p, node, &item->values[at]);
  }
  p.line = node_line(node);
  return schema_refuse(w->raw, &p, "must be a mapping, not %s", node_kind(node));
}

static int list_check(struct walk *w, const struct place *p, const yaml_node_t *node) {
  const struct section_row *row = &schema_sections[p->section];
  if (node->type != YAML_SEQUENCE_NODE) {
    return schema_refuse(w->raw, p, "must be a list, not %s", node_kind(node));
  }
  size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
  if (count > row->items_max) {
    return schema_refuse(w->raw, p, "%zu is out of range (a list of %d to %u)", count,
                         row->required ? 1 : 0, row->items_max);
  }
  return 0;
}

/* A host's or pool's drives. */
static int read_sub_list(struct walk *w, struct place p, const yaml_node_t *node,
                         struct raw_list *list) {
  p.line = list->line = node_line(node);
  int err = list_check(w, &p, node);
  if (err < 0) return err;
  for (yaml_node_item_t *it = node->data.sequence.items.start; it < node->data.sequence.items.top;
       it++) {
    const yaml_node_t *child = yaml_document_get_node(w->doc, *it), *none = NULL;
    struct raw_item *item = raw_list_add(list, node_line(child));
    if (!item) return schema_no_memory(w->raw);
    p.sub_index = (int)list->count - 1;
    err = read_item(w, p, child, item, &none);
    if (err < 0) return err;
  }
  return 0;
}

static enum section sub_section(enum section section) {
  return section == SECTION_HOSTS ? SECTION_HOST_DRIVES : SECTION_POOL_DRIVES;
}

static int read_list(struct walk *w, enum section section, const yaml_node_t *node) {
  struct raw_list *list = &w->raw->lists[section];
  struct place p = {section, -1, -1, NULL, node_line(node), NULL};
  list->line = p.line;
  int err = list_check(w, &p, node);
  if (err < 0) return err;
  for (yaml_node_item_t *it = node->data.sequence.items.start; it < node->data.sequence.items.top;
       it++) {
    const yaml_node_t *child = yaml_document_get_node(w->doc, *it), *sub = NULL;
    struct raw_item *item = raw_list_add(list, node_line(child));
    if (!item) return schema_no_memory(w->raw);
    p.index = (int)list->count - 1;
    err = read_item(w, p, child, item, &sub);
    if (err < 0) return err;
    if (!sub) continue;
    struct place inner = {sub_section(section), p.index, -1, NULL, 0, NULL};
    err = read_sub_list(w, inner, sub, &item->sub);
    if (err < 0) return err;
  }
  return 0;
}

static int read_section(struct walk *w, enum section section, const yaml_node_t *node) {
  if (schema_sections[section].is_list) return read_list(w, section, node);
  struct place p = {section, -1, -1, NULL, node_line(node), NULL};
  if (node->type != YAML_MAPPING_NODE) {
    return schema_refuse(w->raw, &p, "must be a mapping, not %s", node_kind(node));
  }
  const yaml_node_t *none = NULL;
  w->raw->singles[section].line = p.line;
  return read_mapping(w, p, node, &w->raw->singles[section], &none);
}

static int find_section(const char *name, size_t len) {
  for (unsigned s = SECTION_TOP + 1; s < SECTION_COUNT; s++) {
    if (schema_sections[s].parent != SECTION_TOP) continue;
    if (slice_eq(slice_str(schema_sections[s].name), slice_of(name, len))) return (int)s;
  }
  return ERR_NOT_FOUND;
}

static int read_root(struct walk *w, const yaml_node_t *root) {
  struct raw_item *top = &w->raw->singles[SECTION_TOP];
  struct place p = {SECTION_TOP, -1, -1, NULL, node_line(root), NULL};
  if (root->type != YAML_MAPPING_NODE) {
    return schema_refuse(w->raw, &p, "must be a mapping of sections, not %s", node_kind(root));
  }
  top->line = p.line;
  int seen[SECTION_COUNT] = {0};
  for (yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top;
       pair++) {
    const yaml_node_t *key = yaml_document_get_node(w->doc, pair->key);
    const yaml_node_t *value = yaml_document_get_node(w->doc, pair->value);
    p.line = node_line(key);
    p.field = NULL;
    if (key->type != YAML_SCALAR_NODE) {
      return schema_refuse(w->raw, &p, "a section's name must be a word, not %s", node_kind(key));
    }
    p.field = (const char *)key->data.scalar.value;
    size_t len = key->data.scalar.length;
    int section = find_section(p.field, len), field = schema_field_find(SECTION_TOP, p.field, len);
    if (section < 0 && field < 0) return refuse_unknown(w, &p);
    int *line = section >= 0 ? &seen[section] : &seen[SECTION_TOP]; /* the top has one field */
    if (*line) return schema_refuse(w->raw, &p, "given twice (first in line %d)", *line);
    *line = p.line;
    int err = section >= 0 ? read_section(w, (enum section)section, value)
                           : set_scalar(w, schema_field_at(SECTION_TOP, (unsigned)field), p, value,
                                        &top->values[field]);
    if (err < 0) return err;
  }
  return 0;
}

static int refuse_yaml(struct raw *raw, const yaml_parser_t *parser) {
  struct place p = {SECTION_TOP, -1, -1, NULL, (int)parser->problem_mark.line + 1, NULL};
  if (parser->error == YAML_MEMORY_ERROR) return schema_no_memory(raw);
  return schema_refuse(raw, &p, "not YAML: %s", parser->problem ? parser->problem : "unreadable");
}

static int read_documents(struct raw *raw, yaml_parser_t *parser) {
  yaml_document_t doc, more;
  if (!yaml_parser_load(parser, &doc)) return refuse_yaml(raw, parser);
  const yaml_node_t *root = yaml_document_get_root_node(&doc);
  struct place p = {SECTION_TOP, -1, -1, NULL, 1, NULL};
  if (!root) {
    yaml_document_delete(&doc);
    return schema_refuse(raw, &p, "the file is empty");
  }
  struct walk w = {raw, &doc};
  int err = read_root(&w, root);
  yaml_document_delete(&doc);
  if (err < 0) return err;

  if (!yaml_parser_load(parser, &more)) return refuse_yaml(raw, parser);
  root = yaml_document_get_root_node(&more);
  if (root) {
    p.line = (int)more.start_mark.line + 1;
    err = schema_refuse(raw, &p, "a second YAML document begins here; one is allowed");
  }
  yaml_document_delete(&more);
  return err;
}

/* The anchor of a node's first event, which also counts its depth; NULL where it has none. */
static const yaml_char_t *event_anchor(const yaml_event_t *event, unsigned *depth) {
  switch (event->type) {
    case YAML_SCALAR_EVENT:
      return event->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT:
      ++*depth;
      return event->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT:
      ++*depth;
      return event->data.mapping_start.anchor;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
      --*depth;
      return NULL;
    default:
      return NULL;
  }
}

/* A first pass, for libyaml 0.2.5 takes time in the square of open brackets and of anchors: minutes
 * for a file of 1 MiB. What is no YAML is left to the second pass, which says why. */
static int check_shape(struct raw *raw, const char *text, size_t len) {
  yaml_parser_t parser;
  yaml_event_t event;
  unsigned depth = 0, anchors = 0;
  bool end = false;
  int err = 0;
  if (!yaml_parser_initialize(&parser)) return schema_no_memory(raw);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
  while (err == 0 && !end && yaml_parser_parse(&parser, &event)) {
    struct place p = {SECTION_TOP, -1, -1, NULL, (int)event.start_mark.line + 1, NULL};
    if (event_anchor(&event, &depth)) anchors++;
    if (depth > YAML_DEPTH_MAX)
      err = schema_refuse(raw, &p, "nested deeper than %d levels", YAML_DEPTH_MAX);
    else if (anchors > YAML_ANCHORS_MAX)
      err = schema_refuse(raw, &p, "more than %d anchors", YAML_ANCHORS_MAX);
    end = event.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&event);
  }
  yaml_parser_delete(&parser);
  return err;
}

int raw_read_yaml(struct raw *raw, const char *text, size_t len) {
  yaml_parser_t parser;
  int err = check_shape(raw, text, len);
  if (err < 0) return err;
  if (!yaml_parser_initialize(&parser)) return schema_no_memory(raw);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
  err = read_documents(raw, &parser);
  yaml_parser_delete(&parser);
  return err;
}
