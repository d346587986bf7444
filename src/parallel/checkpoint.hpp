#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/module.hpp"
#include "src/parallel/train_step.hpp"
#include "src/report/safetensors.hpp"

namespace lockstep {

/// What a checkpoint saves of a training on this rank. It is enough to resume with the
/// same bits: random numbers are counter based, and batches follow from the step.
struct TrainingState {
    TrainingState() = default;
    TrainingState(GradientSync& sync, Optimizer* optimizer = nullptr) {
        add(sync, optimizer);
    }
    /// Adds a chunk. A device may have several, one for each chunk of a pipeline. Saving
    /// and loading use the strategy's shards(). `optimizer` must be the one that updates
    /// these shards; without it only the shards are saved.
    void add(GradientSync& sync, Optimizer* optimizer = nullptr) {
        chunks.push_back({&sync, optimizer});
    }

    struct Chunk {
        GradientSync* sync;
        Optimizer* optimizer;
    };
    std::vector<Chunk> chunks;
    std::vector<Buffer> buffers;  ///< of the model
};

/// A checkpoint is a folder, "FOLDER/step-00000012". It has a safetensors file of each
/// rank, with the parts that this rank writes, and an index of where each part of each
/// whole tensor lies. So any other number of ranks, and any other strategy, can load it:
/// each rank reads only the pieces that overlap its own parts.
///
///     save_checkpoint(device, mesh.world(), "run", step, {sync, &optimizer});
///     if (const auto last = latest_checkpoint("run"))
///         step = load_checkpoint(device, mesh.world(), *last, {sync, &optimizer});
///
/// Writes a checkpoint between two steps. `ranks` are all ranks that hold the model; each
/// of them calls this. All write at once, to a file system that they share. If several
/// ranks hold copies, only rank 0 of their line writes; call declare_replicas_of before,
/// so that copies are known. Replicas may have different buffers: those of the first rank
/// that has them are saved.
///
/// Rank 0 writes the index after all files are on the disk. A folder without an index is
/// no checkpoint. So a crash at any time leaves the old checkpoint or the new one, whole.
/// Files of an unfinished or damaged checkpoint of the same step are removed first. A
/// whole checkpoint and all other files are never touched.
///
/// Copies from each device what it saves, and makes all-reduces of one number. Throws
/// UsageError if a whole checkpoint of this step exists; if the ranks, apart from copies,
/// do not hold each parameter exactly once; if the strategy has state that a checkpoint
/// does not save (GradientSync::unsaved); or in a run of shapes only. Throws
/// std::system_error with the path if a file cannot be written.
void save_checkpoint(Device& device, Communicator& ranks,
                     const std::filesystem::path& folder, std::int64_t step,
                     const TrainingState& state);

/// Returns the whole checkpoint with the highest step in the folder; none if there is
/// none.
std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& folder);

/// Fills parameters, buffers and optimizer from a checkpoint, brings the new values to
/// the model, and returns the checkpoint's step. `checkpoint` may also be a safetensors
/// file of whole tensors, such as a PyTorch state_dict; it has no optimizer, and its step
/// is 0. An optimizer that is not loaded continues from the new values with its own
/// state. A pending delayed update (ZeroOffload) is dropped. All `ranks` call this.
/// Throws UsageError, which names the tensor, if a tensor is missing or has another shape
/// or type; if the optimizer has other state; or if the checkpoint has parameters that no
/// rank asks for.
std::int64_t load_checkpoint(Device& device, Communicator& ranks,
                             const std::filesystem::path& checkpoint,
                             const TrainingState& state);

/// Returns the parameters and buffers of a checkpoint as whole tensors, with PyTorch's
/// names and layouts. PyTorch can load the file that write_safetensors() makes of them.
NamedTensors read_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace lockstep
