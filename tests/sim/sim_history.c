/* sim_history.c: is a key's history linearizable? Wing and Gong's search with a memory of the
 * states seen; the state is the value of the key. Operations whose outcome nobody was told may have
 * happened at any time after they began, or never. See sim.h. */
#include "tests/sim/sim.h"

#define MEMO_SLOTS (1u << 14)

struct search_state {
  uint64_t mask;
  unsigned value;
};

static struct {
  struct search_state slots[MEMO_SLOTS];
  bool used[MEMO_SLOTS];
  unsigned touched[MEMO_SLOTS];
  unsigned count;
} memo;

static struct search_state *stack;
static size_t stack_count, stack_cap;

static void memo_clear(void) {
  for (unsigned i = 0; i < memo.count; i++) memo.used[memo.touched[i]] = false;
  memo.count = 0;
}

/* True where it was there already. A full memory forgets: the search is only slower. */
static bool memo_add(struct search_state s) {
  uint64_t h = (s.mask ^ (uint64_t)s.value << 57) * 0x9e3779b97f4a7c15ull;
  for (unsigned i = 0; i < 32; i++) {
    unsigned at = (unsigned)((h >> 40) + i) % MEMO_SLOTS;
    if (!memo.used[at]) {
      memo.used[at] = true;
      memo.slots[at] = s;
      memo.touched[memo.count++] = at;
      return false;
    }
    if (memo.slots[at].mask == s.mask && memo.slots[at].value == s.value) return true;
  }
  return false;
}

static void push(uint64_t mask, unsigned value) {
  if (stack_count == stack_cap) {
    stack_cap = MAX(256, stack_cap * 2);
    stack = realloc(stack, stack_cap * sizeof *stack);
    SIM_CHECK(stack);
  }
  stack[stack_count++] = (struct search_state){mask, value};
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

bool history_linearizable(const struct history *h) {
  uint64_t must = 0, all = h->count == 64 ? UINT64_MAX : (1ull << h->count) - 1;
  memo_clear();
  stack_count = 0;
  for (unsigned i = 0; i < h->count; i++)
    if (h->ops[i].out == OUT_NOTHING)
      all &= ~(1ull << i);
    else if (h->ops[i].ret)
      must |= 1ull << i;
  push(0, 0);
  while (stack_count > 0) {
    struct search_state s = stack[--stack_count];
    if ((s.mask & must) == must) return true;
    if (memo_add(s)) continue;
    uint64_t first_ret = UINT64_MAX;
    for (uint64_t left = must & ~s.mask; left; left &= left - 1)
      first_ret = MIN(first_ret, h->ops[__builtin_ctzll(left)].ret);
    for (uint64_t left = all & ~s.mask; left; left &= left - 1) {
      unsigned i = (unsigned)__builtin_ctzll(left), next;
      if (h->ops[i].inv > first_ret || !may_happen(&h->ops[i], s.value, &next)) continue;
      push(s.mask | 1ull << i, next);
    }
  }
  return false;
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
