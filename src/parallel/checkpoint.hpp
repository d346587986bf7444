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

/// What a checkpoint has of a training, on this rank. It is enough to go on with the same
/// bits, since random numbers are counter based and batches follow from the step.
struct TrainingState {
    TrainingState() = default;
    TrainingState(GradientSync& sync, Optimizer* optimizer = nullptr) {
        add(sync, optimizer);
    }
    /// A device may have several, one for each chunk of a pipeline. The strategy's
    /// shards() are saved, or filled. The optimizer is theirs; without, they are saved by
    /// themselves.
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

/// A checkpoint is a folder, "FOLDER/step-00000012": a safetensors file of each rank with
/// what it alone holds, and an index of which part of which whole lies where. So it is
/// loaded on any other number of ranks, and by any other strategy: each reads those
/// pieces that its own parts lie in.
///
///     save_checkpoint(device, mesh.world(), "run", step, {sync, &optimizer});
///     if (const auto last = latest_checkpoint("run"))
///         step = load_checkpoint(device, mesh.world(), *last, {sync, &optimizer});
///
/// Writes one, between two steps. `ranks` are all that hold the model, and each calls it.
/// All write at once, to a file system that they share. Of copies, rank 0 of their line
/// writes its own: where parameters lie is said before (declare_replicas_of). Buffers,
/// which replicas may have of their own, are the first rank's that has them.
///
/// Rank 0 writes the index when all files are on the disk: without it the folder is no
/// checkpoint, so whenever it all stops, there is the old one or the new one, whole. What
/// is left of one that was not finished, or has lost a file, goes before; one that is
/// whole is never touched, and no other files are.
///
/// Costs a copy of what it holds from each device, and all-reduces of one number. Throws
/// UsageError if there is a whole checkpoint of that step, if the ranks do not hold each
/// parameter once, copies aside, if the strategy keeps what a checkpoint does not have
/// (GradientSync::unsaved), or in a run of shapes only; std::system_error with the path
/// if a file cannot be written.
void save_checkpoint(Device& device, Communicator& ranks,
                     const std::filesystem::path& folder, std::int64_t step,
                     const TrainingState& state);

/// Returns the checkpoint in that folder that has most steps and is whole; none if there
/// is none.
std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& folder);

/// Fills parameters, optimizer and buffers from a checkpoint, and brings new values to
/// the model; returns its step. `checkpoint` may also be a safetensors file with whole
/// tensors, as PyTorch writes a state_dict; then there is no optimizer, and the step
/// is 0. An optimizer that is not loaded goes on from the new values, with its own state.
/// A delayed update that was to come (ZeroOffload) does not. Called by all `ranks`.
/// Throws UsageError, which names the tensor, if one is not there, or has another shape
/// or type; if the optimizer has other state; or if the checkpoint has parameters that no
/// rank asks for.
std::int64_t load_checkpoint(Device& device, Communicator& ranks,
                             const std::filesystem::path& checkpoint,
                             const TrainingState& state);

/// Returns a checkpoint's parameters and buffers whole, by PyTorch's names and in its
/// layouts: write_safetensors() makes a file of them that PyTorch loads.
NamedTensors read_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace lockstep
