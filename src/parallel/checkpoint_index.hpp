#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/core/part.hpp"
#include "src/report/safetensors.hpp"

namespace lockstep {

/// A whole tensor of a checkpoint, and its pieces in files.
struct SavedTensor {
    enum class Role : std::uint8_t { parameter, optimizer, buffer };
    struct Piece {
        std::string file;  ///< in the checkpoint's folder
        Part part;
        /// Hashes of the piece's bytes, one for each kHashedBytes of them. Empty in
        /// format 1.
        std::vector<std::uint64_t> hashes{};

        bool operator==(const Piece&) const = default;
    };
    Role role = Role::parameter;
    DType dtype = DType::f32;
    Shape shape;
    std::int64_t steps = 0;  ///< how often a parameter was updated
    std::vector<Piece> pieces;
};

/// Says where each piece of a checkpoint is. The folder's index is "index.json". The
/// header of each rank's file has an index of that file's pieces, in the same form:
///
///     {"format": "lockstep checkpoint 2", "save": "6f1c…", "step": 12,
///      "files": {"rank-0.safetensors": 640},
///      "tensors": {"hidden.weight": {"role": "parameter", "dtype": "f32",
///         "shape": [10, 5], "steps": 12, "pieces": [{"file": "rank-0.safetensors",
///            "shape": [5, 5], "rows": [[0, 0, 5]], "column": 0, "flat": false,
///            "hashes": ["90b4…"]}, ...]}, ...}}
///
/// Each entry of "rows" is a Part::Rows: [at, from, count]. "save" is the same in all
/// files of a save, and differs between saves of different values or steps: it is a hash
/// of all pieces. Format 1 had neither hashes nor "save"; it is still read.
struct CheckpointIndex {
    std::string save;  ///< empty in format 1
    std::int64_t step = 0;
    std::map<std::string, std::uint64_t> files;  ///< sizes in bytes, by name
    std::map<std::string, SavedTensor> tensors;
};

inline constexpr const char* kIndexFile = "index.json";
inline constexpr std::int64_t kHashedBytes = std::int64_t{1} << 20;

/// Returns the hashes of a piece's bytes: SavedTensor::Piece::hashes.
std::vector<std::uint64_t> hashes_of(const HostTensor& values);
/// Returns a hash of the index's step, its tensors and the hashes of their pieces.
std::uint64_t hash_of(const CheckpointIndex& index);

std::string index_text(const CheckpointIndex& index);
/// Throws a UsageError that names `file` if the text is not such an index. Every value in
/// the text is checked.
CheckpointIndex read_index(const std::string& text, const std::filesystem::path& file);

/// Merges the indices in the files' headers into one. Together the files must have each
/// element of parameters and optimizer state exactly once. If several files have a copy
/// of a buffer, the first file's copy is used. Throws UsageError if elements are missing
/// or repeated, or if the files contradict each other.
CheckpointIndex merge_indices(const std::filesystem::path& folder,
                              const std::vector<std::string>& files);

/// Reads tensors of a checkpoint, or parts of tensors. From each piece it reads only the
/// bytes between the first and the last requested element, rounded to kHashedBytes. What
/// is read is compared with its hashes; a file of another save is refused by its name.
class CheckpointReader {
  public:
    /// Opens a checkpoint's folder, or a safetensors file of whole tensors, which then
    /// count as parameters. Throws UsageError if `place` is neither, or is incomplete.
    explicit CheckpointReader(std::filesystem::path place);

    const CheckpointIndex& index() const { return index_; }
    const std::filesystem::path& place() const { return place_; }
    /// Returns the values of this part, with 0 as padding. Throws a UsageError that names
    /// the tensor if the tensor is missing or has another shape or type.
    HostTensor read(const std::string& name, const Part& part, DType dtype);
    /// Reads everything that has hashes. Throws UsageError if a byte is not as it was
    /// written.
    void check();

  private:
    HostTensor read_checked(const std::string& name, const SavedTensor::Piece& piece,
                            std::int64_t first, std::int64_t count);
    void require_of_this_save(const SafetensorsFile& file, const std::string& name) const;
    void fill(HostTensor& shard, const std::vector<CommonRun>& runs,
              const std::string& name, const SavedTensor::Piece& piece);
    SafetensorsFile& file(const std::string& name);

    std::filesystem::path place_;
    CheckpointIndex index_;
    std::map<std::string, SafetensorsFile> open_;
};

}  // namespace lockstep
