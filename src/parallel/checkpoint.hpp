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

/// The state that a checkpoint saves on this rank. A run that resumes from it computes
/// the same bits: random numbers are counter based, and the step determines the batches.
struct TrainingState {
    TrainingState() = default;
    TrainingState(GradientSync& sync, Optimizer* optimizer = nullptr) {
        add(sync, optimizer);
    }
    /// Adds a chunk of the model; in a pipeline a device may have several chunks. Saving
    /// and loading use the strategy's shards(). `optimizer` must be the optimizer of
    /// these shards; without an optimizer only the shards are saved.
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

/// A checkpoint is a folder, "FOLDER/step-00000012". It has one safetensors file per
/// rank, with the parts that the rank writes, and an index that says where each part of
/// each whole tensor is. So a run with another number of ranks or another strategy can
/// load it: each rank reads only the pieces that overlap its own parts.
///
///     save_checkpoint(device, mesh.world(), "run", step, {sync, &optimizer});
///     if (const auto last = latest_checkpoint("run"))
///         step = load_checkpoint(device, mesh.world(), *last, {sync, &optimizer});
///
/// Writes a checkpoint between two steps. `ranks` are all ranks that hold the model; all
/// of them must call this function. All ranks write at the same time, to a shared file
/// system. If several ranks hold copies of a parameter, only rank 0 of their line writes
/// it; declare the copies before (declare_replicas_of). If copies of a buffer differ, the
/// copy of the first rank that has the buffer is saved.
///
/// A checkpoint is one save: all its files have the save's name (CheckpointIndex::save),
/// and each piece has hashes of its bytes. Loading refuses a file of another save, and
/// bytes that are not those that were written, by the name of the file.
///
/// Rank 0 writes the index after all files are on the disk. A folder without an index is
/// not a checkpoint. So after a crash at any time, the old or the new checkpoint is
/// whole. Files of an unfinished or damaged checkpoint of the same step are removed
/// first. A whole checkpoint and all other files are never touched.
///
/// Copies the saved tensors from each device to its host, and runs all-reduces of at most
/// four numbers. Throws UsageError if a whole checkpoint of this step exists; if the
/// ranks do not hold each parameter exactly once (copies not counted); if the strategy
/// has state that a checkpoint does not save (GradientSync::unsaved); or in a run of
/// shapes only. Throws std::system_error with the path if a file cannot be written.
void save_checkpoint(Device& device, Communicator& ranks,
                     const std::filesystem::path& folder, std::int64_t step,
                     const TrainingState& state);

/// Returns the folder's whole checkpoint with the highest step, if there is one. Reads
/// all bytes of that checkpoint, and of later damaged ones, to compare them with their
/// hashes.
std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& folder);

/// Fills parameters, buffers and optimizer from a checkpoint, sends the new values to the
/// model, and returns the checkpoint's step. `checkpoint` may also be a safetensors file
/// of whole tensors, such as a PyTorch state_dict; such a file has no optimizer state,
/// and its step is 0. An optimizer that is not in `state` keeps its own state and
/// continues from the new values. A pending delayed update (ZeroOffload) is dropped. All
/// `ranks` call this. Throws UsageError if a tensor is missing or has another shape or
/// type (the error names the tensor), if the checkpoint is of another optimizer, or if
/// the ranks together lack a parameter of the checkpoint, or elements of it.
std::int64_t load_checkpoint(Device& device, Communicator& ranks,
                             const std::filesystem::path& checkpoint,
                             const TrainingState& state);

/// Returns the parameters and buffers of a checkpoint as whole tensors, with PyTorch's
/// names and layouts: PyTorch can load a file of these tensors (write_safetensors).
NamedTensors read_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace lockstep
