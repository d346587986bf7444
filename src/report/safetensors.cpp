#include "src/report/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/report/json_text.hpp"
#include "src/report/safetensors_header.hpp"

namespace lockstep {

namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian");

constexpr std::size_t kLengthBytes = 8;

using Entry = NamedTensors::value_type;

/// Hugging Face's order: F64, F32, I32, BF16.
int rank_of(DType dtype) {
    switch (dtype) {
        case DType::f64:
            return 0;
        case DType::f32:
            return 1;
        case DType::i32:
            return 2;
        case DType::bf16:
            return 3;
    }
    return 4;
}

std::vector<const Entry*> in_file_order(const NamedTensors& tensors) {
    std::vector<const Entry*> order;
    for (const Entry& entry : tensors)
        order.push_back(&entry);
    std::ranges::stable_sort(order, {},
                             [](const Entry* e) { return rank_of(e->second.dtype()); });
    return order;
}

const char* format_name(DType dtype) {
    constexpr const char* kNames[] = {"F64", "F32", "I32", "BF16"};
    return kNames[rank_of(dtype)];
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
                       quoted(name), format_name(tensor.dtype()), extents, begin,
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

}  // namespace

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
    const std::vector<const Entry*> order = in_file_order(tensors);
    const std::string header = header_of(order, metadata);
    require(header.size() <= kMaxHeaderBytes,
            "{}: the header would have {} bytes; the format allows {}", path.string(),
            header.size(), kMaxHeaderBytes);
    const auto length = static_cast<std::uint64_t>(header.size());
    WholeFile file(path);
    file.write(reinterpret_cast<const std::byte*>(&length), kLengthBytes);
    file.write(header);
    for (const Entry* entry : order)
        file.write(entry->second.data(), static_cast<std::size_t>(entry->second.bytes()));
    file.finish();
}

NamedTensors read_safetensors(const std::filesystem::path& path) {
    InputFile file(path);
    const std::string header = read_header(file, path);
    NamedTensors tensors;
    for (TensorEntry& entry : parse_safetensors_header(
             header, file.size() - kLengthBytes - header.size(), path.string())) {
        HostTensor tensor(entry.shape, entry.dtype);
        file.read(tensor.data(), entry.end - entry.begin);
        tensors.emplace(std::move(entry.name), std::move(tensor));
    }
    return tensors;
}

}  // namespace lockstep
