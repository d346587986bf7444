#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

// Schedules as torch.distributed.pipelining writes them: CSV, a line a rank, a cell an
// action. "2F0" is the forward of stage 2 with micro-batch 0. What PyTorch calls a stage
// is a part of the model here, and its rank a stage. F, B, I and W compute; SEND_F,
// RECV_F, SEND_B and RECV_B send and receive; "(5F2;3B1)OVERLAP_F_B" is a pair;
// REDUCE_GRAD, with no micro-batch, is R. UNSHARD and RESHARD, which gather and drop
// sharded weights, mean nothing here and are passed over. Optimizer steps are not part of
// it.

/// Returns whether a cell of a CSV file is written so: it begins with a number, or a
/// bracket and a number.
bool is_pytorch_action(std::string_view cell);

/// One rank's cells in Lockstep's own words.
class PyTorchRank {
  public:
    /// Takes in a cell; false if it is none of these.
    bool add(std::string_view cell, int line);

    /// Returns the parts of the model that the rank has, in order.
    std::vector<int> parts() const;
    /// The cells as instructions' texts, each with its line: "F0.1", "(F2.1;B1)".
    std::vector<std::pair<std::string, int>> texts() const;

  private:
    struct Action {
        int part = 0;
        std::optional<InstructionKind> kind;  ///< none if it means nothing here
        int micro_batch = -1;
    };
    struct Cell {
        std::vector<Action> actions;
        int line = 0;
    };

    static std::optional<Action> read(std::string_view text);

    std::vector<Cell> cells_;
};

/// The schedule as PyTorch reads it, without its optimizer steps. Throws UsageError for
/// what PyTorch has no words for: versions of weights, updates with work behind them, a
/// part on two stages, groups of messages, a queue for each direction.
std::string pytorch_csv(const Schedule& schedule);

/// The schedule as load_schedule() reads it: a line a stage.
std::string schedule_csv(const Schedule& schedule);

}  // namespace lockstep
