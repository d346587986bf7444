#include "src/parallel/checkpoint_index.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

constexpr const char* kFormat = "lockstep checkpoint 1";
constexpr std::array<const char*, 3> kRoles = {"parameter", "optimizer", "buffer"};
constexpr std::array<DType, 4> kDTypes = {DType::f32, DType::f64, DType::i32,
                                          DType::bf16};
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{1} << 30;

Json extents_of(const Shape& shape) {
    Json extents = Json::array();
    for (int d = 0; d < shape.dimensions(); ++d)
        extents.push_back(shape[d]);
    return extents;
}

Json json_of(const SavedTensor::Piece& piece) {
    Json rows = Json::array();
    for (const Part::Rows& block : piece.part.rows)
        rows.push_back(
            Json(std::vector<std::int64_t>{block.at, block.from, block.count}));
    return Json::Object{{"file", piece.file},
                        {"shape", extents_of(piece.part.shape)},
                        {"rows", rows},
                        {"column", piece.part.column},
                        {"flat", piece.part.flat}};
}

Json json_of(const SavedTensor& tensor) {
    Json pieces = Json::array();
    for (const SavedTensor::Piece& piece : tensor.pieces)
        pieces.push_back(json_of(piece));
    return Json::Object{{"role", kRoles[static_cast<std::size_t>(tensor.role)]},
                        {"dtype", name_of(tensor.dtype)},
                        {"shape", extents_of(tensor.shape)},
                        {"steps", tensor.steps},
                        {"pieces", pieces}};
}

/// Reads the values of an index. An error says where in the index the wrong value is.
class IndexReader {
  public:
    explicit IndexReader(std::string where) : where_(std::move(where)) {}

    /// Returns a reader for a member, one level deeper.
    IndexReader at(const std::string& member) const {
        return IndexReader(where_ + ": " + member);
    }
    void check(bool condition, const char* expected) const {
        require(condition, [&] { return fmt::format("{}: {}", where_, expected); });
    }

    std::int64_t natural(const Json& value) const {
        constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
        check(value.is_integer(), "a whole number is expected");
        const auto number = value.get<std::int64_t>();
        check(number >= 0 && number <= kMost, "a number is too large, or negative");
        return number;
    }

    Shape shape(const Json& value) const {
        check(value.is_array() && value.size() <= Shape::kMaxDimensions,
              "a shape of up to four extents is expected");
        std::array<std::int64_t, Shape::kMaxDimensions> extents{};
        std::int64_t elements = 1;
        int dimensions = 0;
        for (const Json& extent : value.elements()) {
            const std::int64_t next = natural(extent);
            check(next == 0 || elements <= kMostElements / next,
                  "the shape is too large");
            elements *= std::max<std::int64_t>(next, 1);
            extents.at(static_cast<std::size_t>(dimensions++)) = next;
        }
        return {extents.data(), dimensions};
    }

    SavedTensor tensor(const Json& value) const {
        SavedTensor tensor;
        tensor.role = static_cast<SavedTensor::Role>(one_of(value.at("role"), kRoles));
        std::array<std::string_view, kDTypes.size()> types;
        std::ranges::transform(kDTypes, types.begin(),
                               [](DType dtype) { return name_of(dtype); });
        tensor.dtype = kDTypes.at(one_of(value.at("dtype"), types));
        tensor.shape = shape(value.at("shape"));
        tensor.steps = natural(value.at("steps"));
        for (const Json& piece : value.at("pieces").elements())
            tensor.pieces.push_back(this->piece(piece, tensor.shape));
        return tensor;
    }

    /// Returns the name if it names a file in the index's own folder; else throws.
    std::string file_name(const std::string& name) const {
        check(!name.empty() && name.find('/') == std::string::npos && name != "." &&
                  name != "..",
              "the name of a file in the same folder is expected");
        return name;
    }

  private:
    static constexpr std::int64_t kMostElements =
        std::numeric_limits<std::int64_t>::max() / 16;

    template <typename Words>
    std::size_t one_of(const Json& value, const Words& words) const {
        const auto found =
            std::ranges::find_if(words, [&](const auto& word) { return value.is(word); });
        check(found != words.end(), "its role or dtype is unknown");
        return static_cast<std::size_t>(found - words.begin());
    }

    SavedTensor::Piece piece(const Json& value, const Shape& whole) const {
        SavedTensor::Piece piece{file_name(value.at("file").get<std::string>()), {}};
        Part& part = piece.part;
        part.whole = whole;
        part.shape = shape(value.at("shape"));
        part.column = natural(value.at("column"));
        part.flat = value.at("flat").get<bool>();
        for (const Json& block : value.at("rows").elements()) {
            check(block.is_array() && block.size() == 3, "rows are three numbers each");
            const Json::Array& numbers = block.elements();
            part.rows.push_back(
                {natural(numbers[0]), natural(numbers[1]), natural(numbers[2])});
        }
        check(is_sound(part), "a piece names rows or columns outside the tensor");
        return piece;
    }

    std::string where_;
};

}  // namespace

std::string index_text(const CheckpointIndex& index) {
    Json tensors = Json::object();
    for (const auto& [name, tensor] : index.tensors)
        tensors[name] = json_of(tensor);
    return Json(Json::Object{{"format", kFormat},
                             {"step", index.step},
                             {"files", index.files},
                             {"tensors", tensors}})
        .dump();
}

CheckpointIndex read_index(const std::string& text, const std::filesystem::path& file) {
    const IndexReader reader(file.string() + ": this is no index of a checkpoint");
    try {
        const Json json = Json::parse(text);
        reader.check(
            json.is_object() && json.contains("format") && json.at("format").is(kFormat),
            "its format is not \"lockstep checkpoint 1\"");
        CheckpointIndex index;
        index.step = reader.at("step").natural(json.at("step"));
        for (const auto& [name, bytes] : json.at("files").members())
            index.files[reader.at("files").file_name(name)] =
                static_cast<std::uint64_t>(reader.at(name).natural(bytes));
        for (const auto& [name, tensor] : json.at("tensors").members())
            index.tensors[name] = reader.at(name).tensor(tensor);
        return index;
    } catch (const JsonError& error) {
        throw UsageError(fmt::format("{}: this is no index of a checkpoint: {}",
                                     file.string(), error.what()));
    }
}

namespace {

void require_whole(const std::string& name, const SavedTensor& tensor,
                   const std::filesystem::path& folder, const char* advice = "") {
    std::vector<Part> parts;
    parts.reserve(tensor.pieces.size());
    for (const SavedTensor::Piece& piece : tensor.pieces)
        parts.push_back(piece.part);
    require(cover_once(tensor.shape, parts), [&] {
        return fmt::format(
            "{}: the {} pieces of {} do not cover each element of its shape {} exactly "
            "once{}",
            folder.string(), parts.size(), name, tensor.shape, advice);
    });
}

void merge(CheckpointIndex& all, CheckpointIndex of_file, const std::string& file) {
    require(all.step == of_file.step, "{} was saved at step {}, the other ranks' at {}",
            file, of_file.step, all.step);
    for (auto& [name, tensor] : of_file.tensors) {
        const auto [known, is_new] = all.tensors.try_emplace(name, tensor);
        SavedTensor& there = known->second;
        if (is_new) continue;
        require(there.role == tensor.role && there.dtype == tensor.dtype &&
                    there.shape == tensor.shape && there.steps == tensor.steps,
                "{} is {} {} after {} steps in {}, but {} {} after {} in {}", name,
                name_of(there.dtype), there.shape, there.steps, there.pieces.front().file,
                name_of(tensor.dtype), tensor.shape, tensor.steps, file);
        if (there.role != SavedTensor::Role::buffer)
            std::ranges::move(tensor.pieces, std::back_inserter(there.pieces));
    }
}

}  // namespace

CheckpointIndex merge_indices(const std::filesystem::path& folder,
                              const std::vector<std::string>& files) {
    CheckpointIndex all;
    for (const std::string& name : files) {
        const SafetensorsFile file(folder / name);
        const auto text = file.metadata().find(kIndexFile);
        require(text != file.metadata().end(), [&] {
            return (folder / name).string() +
                   ": this file does not belong to a checkpoint";
        });
        CheckpointIndex of_file = read_index(text->second, folder / name);
        if (all.files.empty()) all.step = of_file.step;
        merge(all, std::move(of_file), name);
        all.files[name] = file.bytes();
    }
    for (const auto& [name, tensor] : all.tensors)
        require_whole(name, tensor, folder,
                      "; if ranks hold copies, declare them first (declare_replicas_of)");
    return all;
}

namespace {

CheckpointIndex index_of_whole(const std::filesystem::path& path) {
    const SafetensorsFile file(path);
    CheckpointIndex index;
    index.files[path.filename().string()] = file.bytes();
    for (const auto& [name, entry] : file.tensors())
        index.tensors[name] = {SavedTensor::Role::parameter,
                               entry.dtype,
                               entry.shape,
                               0,
                               {{path.filename().string(), whole_part(entry.shape)}}};
    return index;
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path place)
    : place_(std::move(place)) {
    if (!std::filesystem::is_directory(place_)) {
        index_ = index_of_whole(place_);
        place_ = place_.parent_path();
        return;
    }
    const std::filesystem::path path = place_ / kIndexFile;
    require(std::filesystem::exists(path),
            "{}: this is no checkpoint, or an unfinished one: it has no {}",
            place_.string(), kIndexFile);
    index_ = read_index(read_text_file(path, kMostIndexBytes), path);
    for (const auto& [name, bytes] : index_.files) {
        const std::uint64_t there = InputFile(place_ / name).size();
        require(there == bytes, "{}: the file has {} bytes, but {} were written",
                (place_ / name).string(), there, bytes);
    }
    for (const auto& [name, tensor] : index_.tensors)
        for (const auto& [file, part] : tensor.pieces) {
            const auto known = index_.files.find(file);
            const std::uint64_t bytes = known == index_.files.end() ? 0 : known->second;
            require(static_cast<std::uint64_t>(part.shape.elements()) <=
                        bytes / static_cast<std::uint64_t>(bytes_of(tensor.dtype)),
                    "{}: the index says that {} {} of {} is in {}, but gives that file "
                    "only {} bytes",
                    path.string(), name_of(tensor.dtype), part.shape, name, file, bytes);
        }
}

HostTensor CheckpointReader::read(const std::string& name, const Part& part,
                                  DType dtype) {
    const auto found = index_.tensors.find(name);
    require(found != index_.tensors.end(), [&] {
        return fmt::format("{}: the checkpoint has no {}", place_.string(), name);
    });
    const SavedTensor& saved = found->second;
    require(saved.dtype == dtype && saved.shape == part.whole,
            "{}: {} is {} {} in the checkpoint, but {} {} here", place_.string(), name,
            name_of(saved.dtype), saved.shape, name_of(dtype), part.whole);
    require_whole(name, saved, place_);
    HostTensor shard(part.shape, dtype);
    for (const SavedTensor::Piece& piece : saved.pieces) {
        const std::vector<CommonRun> runs = common_runs(part, piece.part);
        if (!runs.empty()) fill(shard, runs, name, piece);
    }
    return shard;
}

void CheckpointReader::fill(HostTensor& shard, const std::vector<CommonRun>& runs,
                            const std::string& name, const SavedTensor::Piece& piece) {
    SafetensorsFile& from = file(piece.file);
    const auto entry = from.tensors().find(name);
    require(entry != from.tensors().end() && entry->second.dtype == shard.dtype() &&
                entry->second.shape == piece.part.shape,
            "{}: {} is not the {} {} that the index says", (place_ / piece.file).string(),
            name, name_of(shard.dtype()), piece.part.shape);
    std::int64_t first = runs.front().other, end = first;
    for (const CommonRun& run : runs) {
        first = std::min(first, run.other);
        end = std::max(end, run.other + run.count);
    }
    const HostTensor values = from.read(name, first, end - first);
    const std::int64_t width = bytes_of(shard.dtype());
    for (const CommonRun& run : runs)
        std::memcpy(shard.data() + run.at * width,
                    values.data() + (run.other - first) * width,
                    static_cast<std::size_t>(run.count * width));
}

SafetensorsFile& CheckpointReader::file(const std::string& name) {
    constexpr std::size_t kMostOpen = 64;
    const auto found = open_.find(name);
    if (found != open_.end()) return found->second;
    if (open_.size() == kMostOpen) open_.clear();
    return open_.try_emplace(name, place_ / name).first->second;
}

}  // namespace lockstep
