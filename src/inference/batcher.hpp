#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "src/core/units.hpp"
#include "src/inference/key_value_cache.hpp"
#include "src/inference/page_pool.hpp"
#include "src/inference/sampling.hpp"

namespace lockstep {

/// A prompt, and how many tokens must follow it.
struct Request {
    std::int64_t id = 0;
    Picoseconds arrival = 0;
    std::vector<std::int32_t> prompt;
    std::int64_t output = 1;
    Sampling sampling{};
};

/// The outcome of a request.
struct Answer {
    std::int64_t id = 0;
    std::vector<std::int32_t> tokens;  ///< the generated tokens
    int preemptions = 0;
    std::int64_t reused = 0;  ///< tokens of the prompt that the cache already had
};

struct BatchRules {
    std::int64_t most_sequences = 64;  ///< sequences under way at once
    /// The maximum number of rows of a pass. Decodes of the sequences under way come
    /// first; the remaining rows are for prompts.
    std::int64_t most_rows = 512;
    /// Prompts are computed in pieces that fit beside the decodes, so that no decode
    /// waits for a long prompt (Agrawal et al. 2024, Sarathi-Serve, 2403.02310, section
    /// 4). Otherwise a prompt is computed in one pass, and a long prompt makes the pass
    /// larger than most_rows.
    bool pieces = true;
    /// New sequences join as soon as there is room (Yu et al. 2022, Orca, OSDI, section
    /// 3). Otherwise batching is static: when nothing is under way, waiting requests form
    /// a batch of at most most_sequences, and no other request joins until the batch is
    /// done.
    bool continuous = true;
};

/// Continuous batching: decides what each pass computes. PlainBatcher (plain_batcher.hpp)
/// shows only the idea. Sequences are served in the order of their requests. If a
/// sequence finds no free page, the sequence with the youngest request is preempted: it
/// releases its pages and waits again, before all others. Later its keys and values are
/// computed again, from its prompt and generated tokens (PagedAttention, section 4.5).
///
///     while (!batcher.idle()) {
///         const Pass pass = batcher.next();
///         const Tensor logits = gpt.infer(cache.begin(pass));
///         batcher.take(sample_rows(device, logits, batcher.wanted()));
///     }
///
/// All of this is arithmetic on the host. Ranks that work on the same sequences must be
/// given the same requests before the same pass. If one of these ranks drops a request
/// when its own clock says so, its passes have other shapes than those of the other
/// ranks, and all ranks hang (F02).
class Batcher {
  public:
    /// The pool must stay. Throws UsageError unless a pass may have at least one sequence
    /// and one row.
    Batcher(PagePool& pool, const BatchRules& rules);
    Batcher(const Batcher&) = delete;
    Batcher& operator=(const Batcher&) = delete;

    /// Adds a request, which then waits. Throws UsageError if its prompt is empty, if it
    /// asks for no token, if the pool's pages cannot hold all of its tokens, or if
    /// another request that waits or is under way has the same id.
    void add(Request request);

    /// Adds a request whose prompt was computed elsewhere, and its first token (which may
    /// be the only one). If there is room for the request and no other request waits, it
    /// is under way at once. Then returns the pages to which the caller must copy the
    /// prompt's keys and values before the next pass. Otherwise adds nothing, and returns
    /// none. Call it between a take() and the next pass. Throws UsageError as add() does.
    std::optional<PagedSequence> join(const Request& request, std::int32_t first);

    /// Gives up a request, because its user has gone or because it has waited too long.
    /// Its pages are released, and it becomes an answer with the tokens that it has. Call
    /// it between a take() and the next pass. Returns false if there is no such request.
    bool drop(std::int64_t id);

    /// True if nothing is under way and nothing waits.
    bool idle() const { return running_.empty() && waiting_.empty(); }
    /// Sequences under way, and requests that wait.
    std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
    std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }

    /// Returns what to compute next. take() then expects the pass's tokens, even if the
    /// pass has no rows. The pass has no rows if the batcher is idle, or if other
    /// batchers have so many of the pool's pages that no sequence can continue. An idle
    /// rank, too, computes a pass without rows if other ranks need its experts.
    Pass next();
    /// Returns how to choose a token for each row in the pass's `wanted`, in that order.
    std::vector<Wanted> wanted() const;
    /// Adds the tokens chosen for these rows to the sequences. Sequences that have all
    /// their tokens become answers.
    void take(const std::vector<std::int32_t>& tokens);

    /// Returns the requests that have been answered since the last call, in the order in
    /// which they ended.
    std::vector<Answer> answers();

  private:
    struct Sequence {
        Request request;
        std::vector<std::int32_t> ids;  ///< the prompt and the tokens after it
        SequencePages pages;
        std::int64_t planned = 0;  ///< rows in the pass that is under way
        int preemptions = 0;
        std::int64_t reused = 0;

        std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
        /// Rows to compute until the model can choose the sequence's next token.
        std::int64_t missing() const { return tokens() - pages.tokens; }
        bool decodes() const { return missing() == 1 && tokens() > prompt(); }
        std::int64_t prompt() const {
            return static_cast<std::int64_t>(request.prompt.size());
        }
    };
    void plan_decodes();
    void plan_prompts();
    void admit();
    bool plan(Sequence& sequence, std::int64_t rows);
    std::int64_t rows_of_prompt(const Sequence& sequence) const;
    void preempt_youngest();
    void require_possible(const Request& request);
    void answer(Sequence& sequence);
    void answer_complete();
    std::int64_t rows_left() const { return rules_.most_rows - rows_; }

    PagePool& pool_;
    BatchRules rules_;
    std::deque<Sequence> waiting_;
    std::deque<Sequence> running_;  ///< the oldest request first
    std::int64_t rows_ = 0;         ///< rows planned for the next pass
    std::int64_t may_join_ = 0;     ///< static batching: sequences that may still join
    bool has_prompt_ = false;
    bool under_way_ = false;
    std::vector<Answer> answers_;
    std::set<std::int64_t> ids_;  ///< the ids of requests that wait or are under way
};

}  // namespace lockstep
