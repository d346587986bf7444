#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/inference/batcher.hpp"
#include "src/nn/module.hpp"

namespace lockstep {

/// Pipeline-parallel decoding. A sequence's next token enters the stages only after the
/// previous token has left them, so one group of sequences keeps only one of p stages
/// busy. With p groups or more, each stage always has a group. Tokens go around a ring:
/// the last stage chooses tokens and sends them to the first stage (Pope et al. 2022,
/// 2211.05102, section 3; a group is like a micro-batch of Huang et al. 2019).
///
///     x        (rows, 1, h), from a stage to the next: 2 h bytes a row in bf16
///     tokens   4 bytes each, from the last stage to the first, and then on to the
///              others, each time before the x that is computed from them
///
/// Each stage has the cache of its own layers. Every stage's batchers get all tokens, so
/// they decide the same. If a pass takes the time t on a stage, a round of m groups takes
/// m t, but at least p t plus the time in which tokens return to the first stage. To
/// reach this, a stage must continue while its message waits for the next stage, so each
/// pair of neighbours has its own communicator. If a stage waited for its messages, two
/// neighbours could only work in turn, and half of the stages would be idle.
class DecodingRing {
  public:
    struct Stage {
        KeyValueCache& cache;
        Module& layers;
        std::int64_t hidden = 0;  ///< columns of x
        DType dtype = DType::f32;
        /// Chooses tokens from logits, on the last stage: sample_rows.
        std::function<std::vector<std::int32_t>(const Tensor&, std::span<const Wanted>)>
            choose;
    };

    /// Every rank of the line makes a DecodingRing; rank i is stage i. The objects to
    /// which `stage` has references must outlive it.
    DecodingRing(Communicator& line, Stage stage, SourceLine at = SourceLine::here());

    /// Lets all groups generate until they are idle. Each group has its own batcher;
    /// batchers may share a pool. Every rank calls it, with batchers that have the same
    /// requests. Throws UsageError if no group can continue because other groups have the
    /// pool's pages.
    void run(std::span<Batcher* const> groups, SourceLine at = SourceLine::here());

  private:
    /// The data that a stage keeps from one pass of a group to the group's next pass.
    struct Turn {
        std::vector<Wanted> wanted;
        std::vector<std::int32_t> chosen;  ///< on the last stage
        Tensor tokens;                     ///< (wanted), under way to this stage
        std::optional<Work> arrival;
        bool under_way = false;
    };
    bool is_first() const { return rank_ == 0; }
    bool is_last() const { return rank_ == stages_ - 1; }
    std::vector<std::int32_t> tokens_of(Turn& turn, SourceLine at);
    bool compute(Batcher& group, Turn& turn, SourceLine at);
    void send_on(const Tensor& tensor, SourceLine at);
    void wait_for_sent(SourceLine at);

    Stage stage_;
    Device& device_;
    int rank_;
    int stages_;
    std::unique_ptr<Communicator> before_;  ///< with the stage before; null on the first
    std::unique_ptr<Communicator> after_;   ///< with the next stage; null on the last
    std::unique_ptr<Communicator> back_;    ///< from the last stage to the first
    std::vector<std::pair<Tensor, Work>> sent_;
};

}  // namespace lockstep
