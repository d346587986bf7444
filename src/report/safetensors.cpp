#include "src/report/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/core/dtype.hpp"
#include "src/core/require.hpp"
#include "src/core/shape.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

/// The format's own limit on the header's length.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// One tensor as the header of a safetensors file describes it. Offsets count from the
/// first byte after the header.
struct TensorEntry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

using nlohmann::json;

struct NamedDType {
    std::string_view name;
    DType dtype;
};

/// Hugging Face's names of dtypes, in the order in which its files store tensors.
constexpr std::array<NamedDType, 4> kDTypes{{{"F64", DType::f64},
                                             {"F32", DType::f32},
                                             {"I32", DType::i32},
                                             {"BF16", DType::bf16}}};

const NamedDType* place_of(DType dtype) {
    return std::ranges::find(kDTypes, dtype, &NamedDType::dtype);
}

constexpr const char* kMetadata = "__metadata__";

/// Returns a text from the file as messages quote it: shortened and escaped.
std::string shortened(std::string text) {
    constexpr std::size_t kLongest = 80;
    if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
    return json_quoted(text);
}

/// Refuses everything that would make the header's tree large or ambiguous, while the
/// header is parsed: deep nesting, long arrays, repeated keys.
class Guard {
  public:
    explicit Guard(const std::string& file) : file_(file) {}

    bool operator()(int depth, json::parse_event_t event, const json& value) {
        using Event = json::parse_event_t;
        if (event == Event::object_start || event == Event::array_start) {
            require(depth < kMaxDepth,
                    [&] { return file_ + ": the header is nested too deeply"; });
            keys_[depth].clear();
            values_ = 0;
        } else if (event == Event::key) {
            require(keys_[depth - 1].insert(value).second, [&] {
                return fmt::format("{}: the header has {} twice", file_,
                                   shortened(value));
            });
        } else if (event == Event::value && depth == kMaxDepth) {
            require(++values_ <= Shape::kMaxDimensions,
                    "{}: the header has an array of more than {} values", file_,
                    Shape::kMaxDimensions);
        }
        return true;
    }

  private:
    static constexpr int kMaxDepth = 3;
    const std::string& file_;
    std::array<std::set<std::string>, kMaxDepth> keys_;
    int values_ = 0;
};

json parse(const std::string& header, const std::string& file) {
    require(header.starts_with('{'),
            [&] { return file + ": the header does not begin with {"; });
    try {
        Guard guard(file);
        return json::parse(header,
                           [&](int depth, json::parse_event_t event, const json& value) {
                               return guard(depth, event, value);
                           });
    } catch (const json::parse_error& error) {
        throw UsageError(fmt::format(
            "{}: the header is not JSON: the mistake is at byte {}", file, error.byte));
    } catch (const json::out_of_range&) {
        throw UsageError(file + ": the header has a number that is too large");
    }
}

/// Reads one tensor's description member by member; every error names file and tensor.
class EntryReader {
  public:
    EntryReader(const std::string& file, const std::string& name, const json& members)
        : file_(file), name_(name), members_(members) {}

    TensorEntry read() const {
        check(members_.is_object() && members_.size() == 3 &&
                  members_.contains("dtype") && members_.contains("shape") &&
                  members_.contains("data_offsets"),
              "its description must have exactly dtype, shape and data_offsets");
        const auto [begin, end] = offsets();
        const DType dtype = read_dtype();
        const Shape shape = read_shape();
        const auto bytes = static_cast<std::uint64_t>(shape.elements() * bytes_of(dtype));
        require(begin <= end, [&, begin = begin, end = end] {
            return complaint(
                fmt::format("its data ends at {}, before it begins at {}", end, begin));
        });
        require(end - begin == bytes, [&, begin = begin, end = end] {
            return complaint(fmt::format(
                "{} of shape {} needs {} bytes, but its offsets span {}",
                members_["dtype"].get<std::string>(), shape.text(), bytes, end - begin));
        });
        return {name_, dtype, shape, begin, end};
    }

  private:
    std::string complaint(const std::string& what) const {
        return fmt::format("{}: tensor {}: {}", file_, shortened(name_), what);
    }

    void check(bool condition, const char* what) const {
        require(condition, [&] { return complaint(what); });
    }

    DType read_dtype() const {
        const json& value = members_["dtype"];
        check(value.is_string(), "its dtype is not a string");
        const auto text = value.get<std::string>();
        const auto* found = std::ranges::find(kDTypes, text, &NamedDType::name);
        require(found != kDTypes.end(), [&] {
            return complaint(fmt::format("dtype {}; F64, F32, I32 and BF16 can be read",
                                         shortened(text)));
        });
        return found->dtype;
    }

    Shape read_shape() const {
        const json& value = members_["shape"];
        check(value.is_array(), "its shape is not an array");
        constexpr std::uint64_t kMostElements =
            std::numeric_limits<std::int64_t>::max() / 16;
        std::array<std::int64_t, Shape::kMaxDimensions> extents{};
        std::uint64_t elements = 1;
        for (std::size_t d = 0; d < value.size(); ++d) {
            require(value[d].is_number_unsigned(), [&] {
                return complaint(fmt::format("its shape has {}, which is not an extent",
                                             shortened(value[d].dump())));
            });
            const auto extent = value[d].get<std::uint64_t>();
            check(extent == 0 || elements <= kMostElements / extent,
                  "its shape has more elements than can be addressed");
            elements *= std::max<std::uint64_t>(extent, 1);
            extents[d] = static_cast<std::int64_t>(extent);
        }
        return {extents.data(), static_cast<int>(value.size())};
    }

    std::pair<std::uint64_t, std::uint64_t> offsets() const {
        const json& value = members_["data_offsets"];
        check(value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                  value[1].is_number_unsigned(),
              "its data_offsets are not two offsets");
        return {value[0].get<std::uint64_t>(), value[1].get<std::uint64_t>()};
    }

    const std::string& file_;
    const std::string& name_;
    const json& members_;
};

std::map<std::string, std::string> read_metadata(const json& metadata,
                                                 const std::string& file) {
    const bool strings =
        metadata.is_object() &&
        std::ranges::all_of(metadata, [](const json& v) { return v.is_string(); });
    require(strings, [&] { return file + ": __metadata__ must map names to strings"; });
    return metadata.get<std::map<std::string, std::string>>();
}

void check_cover(const std::vector<TensorEntry>& entries, std::uint64_t data_bytes,
                 const std::string& file) {
    std::uint64_t covered = 0;
    for (const TensorEntry& entry : entries) {
        const auto name = [&] { return shortened(entry.name); };
        require(entry.begin == covered, [&] {
            return fmt::format(
                "{}: tensor {}: its data begins at {}, but the data before it ends at "
                "{}: they {}",
                file, name(), entry.begin, covered,
                entry.begin < covered ? "overlap" : "leave a gap");
        });
        covered = entry.end;
        require(covered <= data_bytes, [&] {
            return fmt::format(
                "{}: tensor {}: its data ends at {}, but the file has {} bytes of data",
                file, name(), covered, data_bytes);
        });
    }
    require(covered == data_bytes,
            "{}: {} bytes after the last tensor belong to no tensor", file,
            data_bytes - covered);
}

struct Header {
    std::vector<TensorEntry> entries;  ///< in the order of their data
    std::map<std::string, std::string> metadata;
};

/// Throws UsageError, which names `file`, if the header has mistakes or its tensors do
/// not cover `data_bytes` exactly.
Header parse_header(const std::string& header, std::uint64_t data_bytes,
                    const std::string& file) {
    const json tree = parse(header, file);
    Header parsed;
    for (const auto& [name, members] : tree.items()) {
        if (name == kMetadata)
            parsed.metadata = read_metadata(members, file);
        else
            parsed.entries.push_back(EntryReader(file, name, members).read());
    }
    std::ranges::sort(parsed.entries, {}, [](const TensorEntry& entry) {
        return std::pair(entry.begin, entry.end);
    });
    check_cover(parsed.entries, data_bytes, file);
    return parsed;
}

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian");

constexpr std::size_t kLengthBytes = 8;

using Entry = NamedTensors::value_type;

std::vector<const Entry*> in_file_order(const NamedTensors& tensors) {
    std::vector<const Entry*> order;
    for (const Entry& entry : tensors)
        order.push_back(&entry);
    std::ranges::stable_sort(order, {},
                             [](const Entry* e) { return place_of(e->second.dtype()); });
    return order;
}

std::string quoted(const std::string& text) {
    require(is_utf8(text), "a name in a safetensors file must be UTF-8");
    return json_quoted(text);
}

std::string metadata_member(const std::map<std::string, std::string>& metadata) {
    std::string members;
    for (const auto& [key, value] : metadata)
        members += fmt::format("{}{}:{}", members.empty() ? "" : ",", quoted(key),
                               quoted(value));
    return fmt::format("\"__metadata__\":{{{}}}", members);
}

std::string tensor_member(const Entry& entry, std::int64_t begin) {
    const auto& [name, tensor] = entry;
    require(name != "__metadata__",
            "no tensor of a safetensors file can be __metadata__");
    std::string extents;
    for (int d = 0; d < tensor.shape().dimensions(); ++d)
        extents += fmt::format("{}{}", d == 0 ? "" : ",", tensor.shape()[d]);
    return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                       quoted(name), place_of(tensor.dtype())->name, extents, begin,
                       begin + tensor.bytes());
}

std::string header_of(const std::vector<const Entry*>& order,
                      const std::map<std::string, std::string>& metadata) {
    std::string header = "{";
    if (!metadata.empty()) header += metadata_member(metadata);
    std::int64_t offset = 0;
    for (const Entry* entry : order) {
        if (header.size() > 1) header += ',';
        header += tensor_member(*entry, offset);
        offset += entry->second.bytes();
    }
    header += '}';
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return header;
}

std::string read_header(InputFile& file, const std::filesystem::path& path) {
    require(file.size() >= kLengthBytes,
            "{}: {} bytes are too few for a safetensors file", path.string(),
            file.size());
    std::uint64_t length = 0;
    file.read(&length, kLengthBytes);
    require(length <= kMaxHeaderBytes,
            "{}: the header claims {} bytes; the format allows {}", path.string(), length,
            kMaxHeaderBytes);
    require(length <= file.size() - kLengthBytes,
            "{}: the header claims {} bytes, but {} follow", path.string(), length,
            file.size() - kLengthBytes);
    std::string header(static_cast<std::size_t>(length), '\0');
    file.read(header.data(), length);
    return header;
}

void write_all(WholeFile& file, const std::filesystem::path& path,
               const NamedTensors& tensors,
               const std::map<std::string, std::string>& metadata) {
    const std::vector<const Entry*> order = in_file_order(tensors);
    const std::string header = header_of(order, metadata);
    require(header.size() <= kMaxHeaderBytes,
            "{}: the header would have {} bytes; the format allows {}", path.string(),
            header.size(), kMaxHeaderBytes);
    const auto length = static_cast<std::uint64_t>(header.size());
    file.write(reinterpret_cast<const std::byte*>(&length), kLengthBytes);
    file.write(header);
    for (const Entry* entry : order)
        file.write(entry->second.data(), static_cast<std::size_t>(entry->second.bytes()));
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
    WholeFile file(path);
    write_all(file, path, tensors, metadata);
    file.finish();
}

void write_durable_safetensors(const std::filesystem::path& path,
                               const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata) {
    WholeFile file(path);
    write_all(file, path, tensors, metadata);
    file.finish_durably();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path) {
    const std::string header = read_header(file_, path);
    const std::uint64_t data = kLengthBytes + header.size();
    Header parsed = parse_header(header, file_.size() - data, path.string());
    metadata_ = std::move(parsed.metadata);
    for (TensorEntry& entry : parsed.entries)
        tensors_.emplace(std::move(entry.name),
                         Entry{entry.dtype, entry.shape, data + entry.begin});
}

HostTensor SafetensorsFile::read(const std::string& name, std::int64_t first,
                                 std::int64_t count) {
    const auto found = tensors_.find(name);
    require(found != tensors_.end(),
            [&] { return fmt::format("{}: there is no {}", path_.string(), name); });
    const auto& [dtype, shape, begin] = found->second;
    require(first >= 0 && count >= 0 && first <= shape.elements() - count,
            "{}: {} has {} elements; {} elements from element {} on were requested",
            path_.string(), name, shape.elements(), count, first);
    HostTensor values(Shape::flat(count), dtype);
    file_.read_at(begin + static_cast<std::uint64_t>(first * bytes_of(dtype)),
                  values.data(), static_cast<std::uint64_t>(values.bytes()));
    return values;
}

NamedTensors read_safetensors(const std::filesystem::path& path) {
    SafetensorsFile file(path);
    NamedTensors tensors;
    for (const auto& [name, entry] : file.tensors())
        tensors.emplace(name,
                        file.read(name, 0, entry.shape.elements()).reshaped(entry.shape));
    return tensors;
}

}  // namespace lockstep
