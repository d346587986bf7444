#include "src/parallel/checkpoint_index.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "src/core/bits.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

constexpr const char* kFormat = "lockstep checkpoint 2";
constexpr const char* kFormatWithoutHashes = "lockstep checkpoint 1";
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

std::string hash_text(std::uint64_t hash) {
    return fmt::format("{:016x}", hash);
}

Json json_of(const SavedTensor::Piece& piece) {
    Json rows = Json::array();
    for (const Part::Rows& block : piece.part.rows)
        rows.push_back(
            Json(std::vector<std::int64_t>{block.at, block.from, block.count}));
    Json hashes = Json::array();
    for (const std::uint64_t hash : piece.hashes)
        hashes.push_back(hash_text(hash));
    return Json::Object{{"file", piece.file},
                        {"shape", extents_of(piece.part.shape)},
                        {"rows", rows},
                        {"column", piece.part.column},
                        {"flat", piece.part.flat},
                        {"hashes", hashes}};
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
    IndexReader(std::string where, bool has_hashes)
        : where_(std::move(where)), has_hashes_(has_hashes) {}

    /// Returns a reader for a member, one level deeper.
    IndexReader at(const std::string& member) const {
        return {where_ + ": " + member, has_hashes_};
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

    std::uint64_t hash(const Json& value) const {
        const auto text = value.get<std::string>();
        std::uint64_t hash = 0;
        const auto [end, error] =
            std::from_chars(text.data(), text.data() + text.size(), hash, 16);
        check(error == std::errc() && end == text.data() + text.size() &&
                  text == hash_text(hash),
              "a hash of 16 hexadecimal digits is expected");
        return hash;
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
        if (!has_hashes_) return piece;
        for (const Json& hash : value.at("hashes").elements())
            piece.hashes.push_back(this->hash(hash));
        return piece;
    }

    std::string where_;
    bool has_hashes_;
};

}  // namespace

std::string index_text(const CheckpointIndex& index) {
    Json tensors = Json::object();
    for (const auto& [name, tensor] : index.tensors)
        tensors[name] = json_of(tensor);
    return Json(Json::Object{{"format", kFormat},
                             {"save", index.save},
                             {"step", index.step},
                             {"files", index.files},
                             {"tensors", tensors}})
        .dump();
}

CheckpointIndex read_index(const std::string& text, const std::filesystem::path& file) {
    const std::string where = file.string() + ": this is no index of a checkpoint";
    try {
        const Json json = Json::parse(text);
        const bool has_format = json.is_object() && json.contains("format");
        const bool has_hashes = has_format && json.at("format").is(kFormat);
        const IndexReader reader(where, has_hashes);
        reader.check(has_hashes || (has_format && !json.contains("save") &&
                                    json.at("format").is(kFormatWithoutHashes)),
                     "its format is not \"lockstep checkpoint 2\"");
        CheckpointIndex index;
        if (has_hashes) index.save = hash_text(reader.hash(json.at("save")));
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

std::vector<std::uint64_t> hashes_of(const HostTensor& values) {
    std::vector<std::uint64_t> hashes;
    for (std::int64_t at = 0; at < values.bytes(); at += kHashedBytes)
        hashes.push_back(hash_of_bits(values.data() + at,
                                      std::min(kHashedBytes, values.bytes() - at)));
    return hashes;
}

std::uint64_t hash_of(const CheckpointIndex& index) {
    CheckpointIndex unnamed = index;
    unnamed.save.clear();
    const std::string text = index_text(unnamed);
    return hash_of_bits(reinterpret_cast<const std::byte*>(text.data()),
                        static_cast<std::int64_t>(text.size()));
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
    require(all.step == of_file.step && all.save == of_file.save,
            "{} belongs to another save, of step {}; the other files are of step {}",
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
        if (all.files.empty()) {
            all.step = of_file.step;
            all.save = of_file.save;
        }
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
        for (const auto& [file, part, hashes] : tensor.pieces) {
            const auto known = index_.files.find(file);
            const std::uint64_t bytes = known == index_.files.end() ? 0 : known->second;
            require(static_cast<std::uint64_t>(part.shape.elements()) <=
                        bytes / static_cast<std::uint64_t>(bytes_of(tensor.dtype)),
                    "{}: the index says that {} {} of {} is in {}, but gives that file "
                    "only {} bytes",
                    path.string(), name_of(tensor.dtype), part.shape, name, file, bytes);
            const std::int64_t blocks =
                (part.shape.elements() * bytes_of(tensor.dtype) + kHashedBytes - 1) /
                kHashedBytes;
            require(
                index_.save.empty() || static_cast<std::int64_t>(hashes.size()) == blocks,
                "{}: {} in {} has {} hashes; {} are expected", path.string(), name, file,
                hashes.size(), blocks);
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
    std::int64_t first = runs.front().other, end = first;
    for (const CommonRun& run : runs) {
        first = std::min(first, run.other);
        end = std::max(end, run.other + run.count);
    }
    const std::int64_t width = bytes_of(shard.dtype());
    // Whole blocks are read, because each has one hash.
    const std::int64_t block = kHashedBytes / width;
    first -= first % block;
    end = std::min(end + (block - 1) - (end + block - 1) % block,
                   piece.part.shape.elements());
    const HostTensor values = read_checked(name, piece, first, end - first);
    for (const CommonRun& run : runs)
        std::memcpy(shard.data() + run.at * width,
                    values.data() + (run.other - first) * width,
                    static_cast<std::size_t>(run.count * width));
}

HostTensor CheckpointReader::read_checked(const std::string& name,
                                          const SavedTensor::Piece& piece,
                                          std::int64_t first, std::int64_t count) {
    SafetensorsFile& from = file(piece.file);
    const std::string path = (place_ / piece.file).string();
    const DType dtype = index_.tensors.at(name).dtype;
    const auto entry = from.tensors().find(name);
    require(entry != from.tensors().end() && entry->second.dtype == dtype &&
                entry->second.shape == piece.part.shape,
            "{}: {} is not the {} {} that the index says", path, name, name_of(dtype),
            piece.part.shape);
    HostTensor values = from.read(name, first, count);
    if (index_.save.empty()) return values;
    const std::int64_t before = first * bytes_of(dtype) / kHashedBytes;
    const std::vector<std::uint64_t> hashes = hashes_of(values);
    const auto expected = piece.hashes.begin() + before;
    require(std::equal(hashes.begin(), hashes.end(), expected),
            "{}: the values of {} are not those that were written: the file is damaged",
            path, name);
    return values;
}

void CheckpointReader::check() {
    if (index_.save.empty()) return;
    // File by file, because each is opened and compared with the index.
    std::map<std::string, std::vector<std::pair<std::string, const SavedTensor::Piece*>>>
        pieces;
    for (const auto& [name, tensor] : index_.tensors) {
        require_whole(name, tensor, place_);
        for (const SavedTensor::Piece& piece : tensor.pieces)
            pieces[piece.file].emplace_back(name, &piece);
    }
    for (const auto& [file, here] : pieces)
        for (const auto& [name, piece] : here) {
            // Block by block, because a piece may be large.
            const std::int64_t block =
                kHashedBytes / bytes_of(index_.tensors.at(name).dtype);
            const std::int64_t elements = piece->part.shape.elements();
            for (std::int64_t at = 0; at < elements; at += block)
                read_checked(name, *piece, at, std::min(block, elements - at));
        }
}

void CheckpointReader::require_of_this_save(const SafetensorsFile& file,
                                            const std::string& name) const {
    if (index_.save.empty()) return;
    const std::string path = (place_ / name).string();
    const auto text = file.metadata().find(kIndexFile);
    require(text != file.metadata().end(),
            "{}: this file does not belong to a checkpoint", path);
    const CheckpointIndex own = read_index(text->second, place_ / name);
    require(own.save == index_.save && own.step == index_.step,
            "{}: this file belongs to another save, of step {}; {} is of step {}", path,
            own.step, kIndexFile, index_.step);
    for (const auto& [tensor, saved] : index_.tensors)
        for (const SavedTensor::Piece& piece : saved.pieces) {
            if (piece.file != name) continue;
            const auto there = own.tensors.find(tensor);
            require(there != own.tensors.end() && there->second.role == saved.role &&
                        there->second.dtype == saved.dtype &&
                        there->second.steps == saved.steps &&
                        there->second.pieces == std::vector{piece},
                    "{}: the file and {} say different things of {}: one of the two is "
                    "damaged",
                    path, kIndexFile, tensor);
        }
}

SafetensorsFile& CheckpointReader::file(const std::string& name) {
    constexpr std::size_t kMostOpen = 64;
    const auto found = open_.find(name);
    if (found != open_.end()) return found->second;
    if (open_.size() == kMostOpen) open_.clear();
    SafetensorsFile opened(place_ / name);
    require_of_this_save(opened, name);
    return open_.emplace(name, std::move(opened)).first->second;
}

}  // namespace lockstep
