#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "lessons/05_ring_self_attention/ring_lesson.hpp"
#include "lessons/runner/most_held.hpp"
#include "src/core/units.hpp"
#include "src/device/ledger.hpp"

namespace lockstep::lessons {

namespace {

/// Where attention's forward and backward run.
using RunOn = std::function<RunReport(Cluster&, const AttentionProblem&)>;

struct Way {
    std::string name;
    int ranks;
    int matrices;  ///< of scores that its ranks hold together at the peak
    RunOn run;
};

std::vector<Way> ways(int ranks) {
    std::vector<Way> all{{"one device, all weights held", 1, 3, run_core},
                         {"one device, online softmax", 1, 0, run_flash}};
    for (const ContextMethod method : all_context_methods())
        all.push_back(
            {name_of(method), ranks,
             method == ContextMethod::ring_self_attention ? 3 : 0,
             [method](Cluster& cluster, const AttentionProblem& problem) {
                 return run_method(cluster, problem, method);
             }});
    return all;
}

/// The most that a device holds.
std::int64_t peak_of(const Way& way, AttentionProblem problem,
                     std::int64_t tokens) {
    problem.tokens = tokens;
    return most_held(
        way.run(*make_shapes_only_cluster(way.ranks), problem));
}

/// The largest multiple of `step` tokens whose peak a device of `capacity`
/// holds; peaks grow with tokens.
std::int64_t longest(const Way& way, const AttentionProblem& problem,
                     std::int64_t step, std::int64_t capacity) {
    return step * largest_that([&](std::int64_t steps) {
               return peak_of(way, problem, steps * step) <= capacity;
           });
}

/// Whether a device of that capacity runs it.
bool runs(const Way& way, AttentionProblem problem, std::int64_t tokens,
          std::int64_t capacity) {
    problem.tokens = tokens;
    ClusterSpec spec = load_cluster("classroom");
    spec.memory_bytes = capacity;
    try {
        way.run(*make_shapes_only_cluster(way.ranks, spec), problem);
        return true;
    } catch (const OutOfMemoryError&) {
        return false;
    }
}

}  // namespace

void RingLesson::memory(Page& page) {
    const AttentionProblem problem = large();
    const std::int64_t a = problem.sizes.heads;
    const std::int64_t s = problem.tokens;
    const auto square = static_cast<double>(2 * a * s * s);
    page.text(fmt::format(
        "What do the scores of step 4's problem weigh, s = {} tokens, {} "
        "heads, 2 bytes each? a s² on one device, a s²/N on each that "
        "runs Ring Self-Attention; Ring Attention never has more than a "
        "tile of a block, in the kernel's shared memory.",
        count_text(s), a));
    page.predict(
        fmt::format("How many bytes of scores does each of {} devices hold "
                    "in Ring Self-Attention?",
                    ranks_),
        square / ranks_, "bytes",
        fmt::format("2 a s²/N = 2 * {} * {}²/{}", a, count_text(s),
                    ranks_));
    show_square(page);
    page.text(
        "On one device backward holds three matrices of scores at its "
        "peak: the weights, their gradient, the scores' gradient. Ring "
        "Self-Attention has an N-th of each. (An all-gather holds keys "
        "and values of the whole sequence, and their gradients, for a "
        "moment: with s, not s².)");
    show_longest(page);
}

void RingLesson::show_square(Page& page) {
    const AttentionProblem problem = large();
    const std::int64_t s = problem.tokens;
    const auto square =
        static_cast<double>(2 * problem.sizes.heads * s * s);
    page.text(
        "What a device holds at most, forward and backward, by the "
        "ledger. Twice the tokens take more than twice as much: half the "
        "excess is the term with s²:");
    Table table{{"", "most held", "term with s²", "in a s² numbers"}, {}};
    std::vector<Check> checks;
    for (const Way& way : ways(ranks_)) {
        const std::int64_t peak = peak_of(way, problem, s);
        // f(s) = p s² + q s: f(2 s) - 2 f(s) = 2 p s²
        const std::int64_t quadratic =
            (peak_of(way, problem, 2 * s) - 2 * peak) / 2;
        table.rows.push_back(
            {way.name, bytes_text(peak), bytes_text(quadratic),
             fmt::format("{:.4g}",
                         static_cast<double>(quadratic) / square)});
        checks.push_back(
            Check::equal(fmt::format("bytes with s² of {}", way.name),
                         static_cast<double>(quadratic),
                         way.matrices * square / way.ranks));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

void RingLesson::show_longest(Page& page) {
    constexpr std::int64_t kCapacity = std::int64_t{16} << 30;
    const AttentionProblem problem = large();
    const std::int64_t step = 8 * ranks_;
    page.text(fmt::format(
        "So how long a sequence does a device of {} hold, in this one "
        "layer's attention? Shapes are enough; the ledger refuses one "
        "step of {} tokens more:",
        bytes_text(kCapacity), step));
    Table table{{"", "tokens", "against one device"}, {}};
    std::vector<Check> checks;
    double one = 0;
    for (const Way& way : ways(ranks_)) {
        const std::int64_t tokens = longest(way, problem, step, kCapacity);
        if (one == 0) one = static_cast<double>(tokens);
        table.rows.push_back(
            {way.name, count_text(tokens),
             fmt::format("{:.3g}", static_cast<double>(tokens) / one)});
        const bool fits = runs(way, problem, tokens, kCapacity) &&
                          !runs(way, problem, tokens + step, kCapacity);
        checks.push_back(Check::equal(
            fmt::format("{}: runs with that many tokens, and runs out of "
                        "memory with {} more",
                        way.name, step),
            fits ? 1 : 0, 1));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
    page.text(
        "Ring Self-Attention's sequence grows as the square root of N, "
        "since its scores are s²/N. Ring Attention's grows with N, "
        "without end, and Ulysses' as long as there are heads to share "
        "out. An all-gather's soon stops growing: each device holds the "
        "keys and values of the whole sequence. What a ring has under "
        "way, up to five blocks, is why two devices hold little more than "
        "one.");
}

}  // namespace lockstep::lessons
