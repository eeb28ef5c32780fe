/* sim_history.c: is a key's history linearizable? Wing and Gong's search with a memory of the
 * states seen; the state is the value of the key. Operations whose outcome nobody was told may have
 * happened at any time after they began, or never. See sim.h. */
#include "tests/sim/sim.h"

#define MEMO_SLOTS (1u << 18)
#define MEMO_MAX (MEMO_SLOTS / 4 * 3) /* states of one history: beyond, it is given up */

struct search_state {
  uint64_t mask;
  uint16_t value;
  bool unseen; /* an unanswered write came last: it is only worth a try for who looks at it next */
};

static struct {
  struct search_state slots[MEMO_SLOTS];
  uint32_t used[MEMO_SLOTS]; /* the search that put it there */
  uint32_t search;
  unsigned count;
} memo;

static struct search_state *stack;
static size_t stack_count, stack_cap;

/* True where it was there already. */
static bool memo_add(struct search_state s) {
  uint64_t h =
      (s.mask ^ (uint64_t)s.value << 48 ^ (uint64_t)s.unseen << 63) * 0x9e3779b97f4a7c15ull;
  for (unsigned at = (unsigned)(h >> 40) % MEMO_SLOTS;; at = (at + 1) % MEMO_SLOTS) {
    const struct search_state *m = &memo.slots[at];
    if (memo.used[at] != memo.search) {
      memo.used[at] = memo.search;
      memo.slots[at] = s;
      memo.count++;
      return false;
    }
    if (m->mask == s.mask && m->value == s.value && m->unseen == s.unseen) return true;
  }
}

static void push(uint64_t mask, unsigned value, bool unseen) {
  if (stack_count == stack_cap) {
    stack_cap = MAX(256, stack_cap * 2);
    stack = realloc(stack, stack_cap * sizeof *stack);
    SIM_CHECK(stack);
  }
  stack[stack_count++] = (struct search_state){mask, (uint16_t)value, unseen};
}

static bool condition_holds(const struct hist_op *op, unsigned state) {
  switch (op->cond) {
    case COND_ABSENT:
      return state == 0;
    case COND_MATCH:
      return state != 0 && state == op->cond_value;
    case COND_ANY:
      return state != 0;
    default:
      return true;
  }
}

/* Whether the operation may happen in this state; *ret_state: the state behind it. */
static bool may_happen(const struct hist_op *op, unsigned state, unsigned *ret_state) {
  *ret_state = state;
  if (op->kind == OP_GET) return op->value == state;
  bool holds = condition_holds(op, state);
  switch (op->out) {
    case OUT_FALSE:
      return !holds && (op->cond == COND_ABSENT || state != 0);
    case OUT_MISSING:
      return !holds && state == 0;
    default:
      *ret_state = op->kind == OP_DELETE ? 0 : op->value;
      return holds;
  }
}

/* Whether somebody's answer may depend on this value having been there. */
static bool is_looked_at(const struct history *h, const struct hist_op *write) {
  for (unsigned i = 0; i < h->count; i++) {
    const struct hist_op *op = &h->ops[i];
    if (op == write || op->out == OUT_NOTHING) continue;
    if (op->kind == OP_GET && op->value == write->value) return true;
    if (op->kind != OP_GET && op->cond != COND_NONE) return true;
  }
  return false;
}

/* Of writes that nobody was answered and that leave the same value, the one that began first serves
 * as well as any other. */
static bool has_elder(const struct history *h, uint64_t left, unsigned at) {
  const struct hist_op *op = &h->ops[at];
  if (op->cond != COND_NONE) return false;
  for (uint64_t rest = left; rest; rest &= rest - 1) {
    const struct hist_op *other = &h->ops[__builtin_ctzll(rest)];
    if (other == op || other->ret || other->kind == OP_GET || other->cond != COND_NONE) continue;
    if (other->kind == op->kind && other->kind == OP_DELETE && other->inv < op->inv) return true;
  }
  return false;
}

static void search_step(const struct history *h, struct search_state s, uint64_t left,
                        uint64_t first_ret) {
  /* The unanswered ones go below: they are tried when nothing else helps. */
  for (unsigned round = 0; round < 2; round++) {
    for (uint64_t rest = left; rest; rest &= rest - 1) {
      unsigned i = (unsigned)__builtin_ctzll(rest), next;
      const struct hist_op *op = &h->ops[i];
      bool maybe = op->out == OUT_MAYBE;
      if (maybe != (round == 0) || op->inv > first_ret || !may_happen(op, s.value, &next)) continue;
      if (s.unseen && op->kind != OP_GET && op->cond == COND_NONE) continue;
      if (maybe && has_elder(h, left, i)) continue;
      push(s.mask | 1ull << i, next, maybe);
    }
  }
}

enum verdict_of_history history_linearizable(const struct history *h) {
  uint64_t must = 0, all = 0;
  memo.search++;
  memo.count = 0;
  stack_count = 0;
  for (unsigned i = 0; i < h->count; i++) {
    const struct hist_op *op = &h->ops[i];
    if (op->out == OUT_NOTHING || (op->out == OUT_MAYBE && !is_looked_at(h, op))) continue;
    all |= 1ull << i;
    if (op->ret) must |= 1ull << i;
  }
  push(0, 0, false);
  while (stack_count > 0) {
    struct search_state s = stack[--stack_count];
    if ((s.mask & must) == must) return HISTORY_GOOD;
    if (memo_add(s)) continue;
    if (memo.count > MEMO_MAX) return HISTORY_TOO_LONG;
    uint64_t first_ret = UINT64_MAX;
    for (uint64_t left = must & ~s.mask; left; left &= left - 1)
      first_ret = MIN(first_ret, h->ops[__builtin_ctzll(left)].ret);
    search_step(h, s, all & ~s.mask, first_ret);
  }
  return HISTORY_BAD;
}

static const char *const outcome_names[] = {"nothing", "maybe", "ok", "412", "404"};

void history_print(const struct sim *sim, unsigned key, FILE *out) {
  const struct history *h = &sim->hist[key];
  fprintf(out, "history of %s:\n", sim->keys[key]);
  for (unsigned i = 0; i < h->count; i++) {
    const struct hist_op *op = &h->ops[i];
    if (op->out == OUT_NOTHING) continue;
    char ret[24] = "?", cond[32] = "";
    if (op->ret) snprintf(ret, sizeof ret, "%llu", (unsigned long long)op->ret);
    if (op->cond == COND_ABSENT) snprintf(cond, sizeof cond, " if none");
    if (op->cond == COND_ANY) snprintf(cond, sizeof cond, " if any");
    if (op->cond == COND_MATCH) snprintf(cond, sizeof cond, " if v%u", op->cond_value);
    fprintf(out, "  %6llu..%-6s op%-3u %-6s", (unsigned long long)op->inv, ret, op->op,
            op_name(op->kind));
    if (op->kind == OP_GET && op->value == 0)
      fprintf(out, " -> nothing\n");
    else if (op->kind == OP_GET)
      fprintf(out, " -> v%u\n", op->value);
    else
      fprintf(out, " v%u%s -> %s\n", op->value, cond, outcome_names[op->out]);
  }
}
