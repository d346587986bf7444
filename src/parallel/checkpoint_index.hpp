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

/// A tensor of a checkpoint: a whole, of which files hold parts.
struct SavedTensor {
    enum class Role : std::uint8_t { parameter, optimizer, buffer };
    struct Piece {
        std::string file;  ///< in the checkpoint's folder
        Part part;
    };
    Role role = Role::parameter;
    DType dtype = DType::f32;
    Shape shape;
    std::int64_t steps = 0;  ///< of a parameter: its updates
    std::vector<Piece> pieces;
};

/// Says what lies where in a checkpoint. The folder has it as "index.json", and each file
/// of a rank, in its header, that of its own pieces:
///
///     {"format": "lockstep checkpoint 1", "step": 12, "files": {"rank-0.safetensors":
///     640},
///      "tensors": {"hidden.weight": {"role": "parameter", "dtype": "f32",
///         "shape": [10, 5], "steps": 12, "pieces": [{"file": "rank-0.safetensors",
///            "shape": [5, 5], "rows": [[0, 0, 5]], "column": 0, "flat": false}, ...]},
///            ...}}
///
/// Rows are Part's: [at, from, count].
struct CheckpointIndex {
    std::int64_t step = 0;
    std::map<std::string, std::uint64_t> files;  ///< their bytes
    std::map<std::string, SavedTensor> tensors;
};

inline constexpr const char* kIndexFile = "index.json";

std::string index_text(const CheckpointIndex& index);
/// Throws UsageError, which names `file`, for a text that is no such index: what it says
/// is not trusted.
CheckpointIndex read_index(const std::string& text, const std::filesystem::path& file);

/// Makes one index of those in the headers of the files. Parameters and state must be
/// there once, each; of a buffer the first file's is taken. Throws UsageError if they are
/// not, or if files say different things.
CheckpointIndex merge_indices(const std::filesystem::path& folder,
                              const std::vector<std::string>& files);

/// Reads tensors of a checkpoint, or parts of them. Only those bytes are read that lie
/// between the first and the last that is asked for of each piece.
class CheckpointReader {
  public:
    /// A checkpoint's folder; or a safetensors file with whole tensors, which then are
    /// parameters. Throws UsageError if it is neither, or is not whole.
    explicit CheckpointReader(std::filesystem::path place);

    const CheckpointIndex& index() const { return index_; }
    const std::filesystem::path& place() const { return place_; }
    /// Returns what a shard holds that is that part; its padding is 0. Throws UsageError,
    /// which names the tensor, if it is not there, or has another shape or type.
    HostTensor read(const std::string& name, const Part& part, DType dtype);

  private:
    void fill(HostTensor& shard, const std::vector<CommonRun>& runs,
              const std::string& name, const SavedTensor::Piece& piece);
    SafetensorsFile& file(const std::string& name);

    std::filesystem::path place_;
    CheckpointIndex index_;
    std::map<std::string, SafetensorsFile> open_;
};

}  // namespace lockstep
