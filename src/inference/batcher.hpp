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

/// A prompt, and how many tokens are to follow it.
struct Request {
    std::int64_t id = 0;
    Picoseconds arrival = 0;
    std::vector<std::int32_t> prompt;
    std::int64_t output = 1;
    Sampling sampling{};
};

/// An answer says what became of a request.
struct Answer {
    std::int64_t id = 0;
    std::vector<std::int32_t> tokens;  ///< that followed the prompt
    int preemptions = 0;
    std::int64_t reused = 0;  ///< tokens of the prompt whose pages were found at first
};

struct BatchRules {
    std::int64_t most_sequences = 64;  ///< that are under way at once
    /// Rows of a pass, at most. A decode of the sequences that are under way goes first;
    /// what is left is for prompts.
    std::int64_t most_rows = 512;
    /// Prompts are computed in pieces that fit beside the decodes, so that none of these
    /// waits for a long prompt (Agrawal et al. 2024, Sarathi-Serve, 2403.02310, section
    /// 4). Otherwise a prompt is computed in one pass, and one that has more rows makes
    /// it longer.
    bool pieces = true;
    /// New sequences join as soon as there is room (Yu et al. 2022, Orca, OSDI, section
    /// 3). Otherwise those that wait when nothing is under way make a batch, as many as
    /// there may be, and nobody else joins until all of these have ended.
    bool continuous = true;
};

/// Decides what each pass computes: continuous batching; PlainBatcher
/// (plain_batcher.hpp) shows only the idea. Sequences are served in the
/// order of their requests. If one finds no page free, the sequence whose request is
/// the youngest gives back its pages and waits again, first of all; what it had is
/// computed once more, from its prompt and what it has generated (PagedAttention,
/// section 4.5).
///
///     while (!batcher.idle()) {
///         const Pass pass = batcher.next();
///         const Tensor logits = gpt.infer(cache.begin(pass));
///         batcher.take(sample_rows(device, logits, batcher.wanted()));
///     }
///
/// It is all arithmetic of the host. Ranks that work on the same sequences must be given
/// the same requests before the same pass: a request that one of them has dropped by its
/// own clock makes passes of other shapes, and a hang (F02).
class Batcher {
  public:
    /// The pool must stay. Throws UsageError unless there is room for a sequence and a
    /// row.
    Batcher(PagePool& pool, const BatchRules& rules);
    Batcher(const Batcher&) = delete;
    Batcher& operator=(const Batcher&) = delete;

    /// A request has come. Throws UsageError if its prompt is empty, if no token is asked
    /// for, if the pool's pages cannot hold all of it, or if there is one of that id.
    void add(Request request);

    /// A request has come whose prompt was computed elsewhere, and its first token, which
    /// may be the only one that it asks for. If there is room for it, and none waits, it
    /// is under way now, and this gives the pages that its prompt's keys and values have
    /// to be on before the next pass. Between a take() and the next pass; throws
    /// UsageError as add() does.
    std::optional<PagedSequence> join(const Request& request, std::int32_t first);

    /// The request is given up: its user has gone, or it has waited for too long. It
    /// gives back its pages, and becomes an answer of the tokens that it has. Between a
    /// take() and the next pass; gives false if there is no such request.
    bool drop(std::int64_t id);

    /// True if nothing is under way and nothing waits.
    bool idle() const { return running_.empty() && waiting_.empty(); }
    /// Sequences under way, and requests that wait.
    std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
    std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }

    /// Gives what to compute next. take() then expects its tokens, also those of a pass
    /// without rows: it has none if the batcher is idle, or if others have so many of the
    /// pool's pages that no sequence goes on. An idle rank computes it, too, if other
    /// ranks' passes need its experts.
    Pass next();
    /// Says how the tokens of the rows that the pass wants are chosen, in their order.
    std::vector<Wanted> wanted() const;
    /// Takes the tokens of these rows. Sequences that have all that they asked for become
    /// answers.
    void take(const std::vector<std::int32_t>& tokens);

    /// Requests that have been answered since the last call, in the order in which they
    /// ended.
    std::vector<Answer> answers();

  private:
    struct Sequence {
        Request request;
        std::vector<std::int32_t> ids;  ///< the prompt, and what followed
        SequencePages pages;
        std::int64_t planned = 0;  ///< rows of the pass that is under way
        int preemptions = 0;
        std::int64_t reused = 0;

        std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
        /// Rows until it has logits again.
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
    std::int64_t rows_ = 0;         ///< of the pass that is being planned
    std::int64_t may_join_ = 0;     ///< of a batch that nobody else joins
    bool has_prompt_ = false;
    bool under_way_ = false;
    std::vector<Answer> answers_;
    std::set<std::int64_t> ids_;  ///< of requests that wait or are under way
};

}  // namespace lockstep
