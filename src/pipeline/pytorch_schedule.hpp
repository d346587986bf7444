#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

// Schedules as torch.distributed.pipelining writes them: CSV, a line for each rank, a
// cell for each action. "2F0" is the forward of stage 2 with micro-batch 0. PyTorch's
// stage is a part of the model here, and PyTorch's rank is a stage. F, B, I and W
// compute; SEND_F, RECV_F, SEND_B and RECV_B send and receive; "(5F2;3B1)OVERLAP_F_B" is
// a pair; REDUCE_GRAD, which has no micro-batch, is R. UNSHARD and RESHARD gather and
// drop sharded weights; they mean nothing here and are ignored. The format has no
// optimizer steps.

/// Returns whether a cell of a CSV file looks like such an action: it begins with a
/// number, or with a bracket and a number.
bool is_pytorch_action(std::string_view cell);

/// Translates one rank's cells into Lockstep's instructions.
class PyTorchRank {
  public:
    /// Adds a cell. Returns false if the cell is not an action of PyTorch.
    bool add(std::string_view cell, int line);

    /// Returns the parts of the model that the rank has, in order.
    std::vector<int> parts() const;
    /// Returns the cells as texts of instructions, each with its line: "F0.1",
    /// "(F2.1;B1)".
    std::vector<std::pair<std::string, int>> texts() const;

  private:
    struct Action {
        int part = 0;
        std::optional<InstructionKind> kind;  ///< none for UNSHARD and RESHARD
        int micro_batch = -1;
    };
    struct Cell {
        std::vector<Action> actions;
        int line = 0;
    };

    static std::optional<Action> read(std::string_view text);

    std::vector<Cell> cells_;
};

/// Returns the schedule in PyTorch's form, without its optimizer steps. Throws UsageError
/// for what that form cannot express: versions of weights, updates before the end, a part
/// on two stages, groups of messages, a queue for each direction.
std::string pytorch_csv(const Schedule& schedule);

/// Returns the schedule as CSV that load_schedule() reads: a line for each stage.
std::string schedule_csv(const Schedule& schedule);

}  // namespace lockstep
