#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/report/safetensors.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string file_of(const std::string& header, const std::string& data) {
    const std::uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header + data;
}

NamedTensors some_tensors() {
    NamedTensors tensors;
    tensors["weight"] = HostTensor::of<float>({2, 3}, {1, -2, 3.5, 0, -0.f, 1e-30f});
    tensors["a/loss"] = HostTensor::of<double>({}, {0.1});
    tensors["ids"] = HostTensor::of<std::int32_t>({3}, {1, -2, 3});
    tensors["none"] = HostTensor(Shape{0, 4}, DType::f32);
    tensors["half"] = HostTensor(Shape{3}, DType::bf16);
    return tensors;
}

/// Returns the error about a file of these bytes.
std::string refused(const TemporaryFolder& folder, const std::string& bytes) {
    write_file(folder / "bad.safetensors", bytes);
    return refusal([&] { read_safetensors(folder / "bad.safetensors"); });
}

std::string refused_header(const TemporaryFolder& folder, const std::string& header,
                           std::size_t data_bytes = 8) {
    return refused(folder, file_of(header, std::string(data_bytes, '\0')));
}

}  // namespace

TEST_CASE("tensors come back from a file with shape, dtype and bits", "[report]") {
    const TemporaryFolder folder;
    NamedTensors tensors = some_tensors();
    tensors["nan"] =
        HostTensor::of<double>({1}, {std::numeric_limits<double>::quiet_NaN()});
    write_safetensors(folder / "t", tensors, {{"who", "a \"test\""}});
    REQUIRE(read_safetensors(folder / "t") == tensors);
    REQUIRE(entries_in(folder.path()) == 1);
}

TEST_CASE("a file without tensors can be written and read", "[report]") {
    const TemporaryFolder folder;
    write_safetensors(folder / "t", {});
    REQUIRE(read_file(folder / "t") == file_of("{}      ", ""));
    REQUIRE(read_safetensors(folder / "t").empty());
}

TEST_CASE("a file has the bytes that Hugging Face's writer makes", "[report]") {
    const TemporaryFolder folder;
    write_safetensors(folder / "t",
                      {{"attn.0", HostTensor::of<float>({1, 2, 3}, {0, 1, 2, 3, 4, 5})}});
    const std::string header =
        R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})";
    const std::string data(
        "\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40", 24);
    REQUIRE(read_file(folder / "t") ==
            std::string("\x40\0\0\0\0\0\0\0", 8) + header + data);
}

TEST_CASE("wider dtypes come first, and data begins at a multiple of eight", "[report]") {
    const TemporaryFolder folder;
    write_safetensors(folder / "t", some_tensors(), {{"k", "v"}});
    const std::string bytes = read_file(folder / "t");
    const std::string header =
        R"({"__metadata__":{"k":"v"},"a/loss":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
        R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]},)"
        R"("weight":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
        R"("ids":{"dtype":"I32","shape":[3],"data_offsets":[32,44]},)"
        R"("half":{"dtype":"BF16","shape":[3],"data_offsets":[44,50]}})";
    REQUIRE(bytes.substr(8, header.size()) == header);
    REQUIRE((bytes.size() - 50) % 8 == 0);
}

TEST_CASE("data in any order, and padding of the header, are read", "[report]") {
    const TemporaryFolder folder;
    const std::string header =
        R"({"b":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},)"
        R"( "a":{"shape":[1],"data_offsets":[0,4],"dtype":"I32"}}   )";
    write_file(folder / "t", file_of(header, std::string("\1\0\0\0\2\0\0\0", 8)));
    const NamedTensors tensors = read_safetensors(folder / "t");
    REQUIRE(tensors.at("a").at(0) == 1);
    REQUIRE(tensors.at("b").at(0) == 2);
}

TEST_CASE("a file shorter than its header says is refused", "[report][errors]") {
    const TemporaryFolder folder;
    REQUIRE(contains(refused(folder, ""), "bad.safetensors: 0 bytes are too few"));
    REQUIRE(contains(refused(folder, "1234567"), "7 bytes are too few"));
    const std::string huge = std::string(8, '\xff') + "{}";
    REQUIRE(
        contains(refused(folder, huge), "the header claims 18446744073709551615 bytes"));
    const std::string large =
        std::string("\0\xe1\xf5\5\0\0\0\0", 8) + "{}";  // 100,000,000
    REQUIRE(contains(refused(folder, large), "claims 100000000 bytes, but 2 follow"));
    const std::string larger = std::string("\1\xe1\xf5\5\0\0\0\0", 8) + "{}";
    REQUIRE(contains(refused(folder, larger), "the format allows 100000000"));
    write_safetensors(folder / "t", some_tensors());
    const std::string whole = read_file(folder / "t");
    for (std::size_t size = 0; size < whole.size(); ++size) {
        INFO("cut to " << size << " of " << whole.size());
        REQUIRE(refused(folder, whole.substr(0, size)) != "");
    }
}

TEST_CASE("a header of invalid or too much JSON is refused", "[report][errors]") {
    const TemporaryFolder folder;
    REQUIRE(contains(refused_header(folder, ""), "does not begin with {"));
    REQUIRE(contains(refused_header(folder, " {}"), "does not begin with {"));
    REQUIRE(contains(refused_header(folder, "[]"), "does not begin with {"));
    REQUIRE(contains(refused_header(folder, "{"), "is not JSON"));
    REQUIRE(contains(refused_header(folder, "{} x"), "is not JSON"));
    REQUIRE(contains(refused_header(folder, "{\"\xff\":{}}"), "is not JSON"));
    REQUIRE(contains(refused_header(folder, R"({"a":1e999})"),
                     "bad.safetensors: the header"));
    std::string deep = R"({"a":)" + std::string(1'000'000, '[');
    REQUIRE(contains(refused_header(folder, deep), "nested too deeply"));
    REQUIRE(contains(refused_header(folder, R"({"a":{"dtype":{"x":{}}}})"),
                     "nested too deeply"));
    std::string wide = R"({"a":{"dtype":"F32","shape":[1)";
    for (int i = 0; i < 100'000; ++i)
        wide += ",1";
    REQUIRE(contains(refused_header(folder, wide + R"(],"data_offsets":[0,4]}})"),
                     "an array of more than 4 values"));
}

TEST_CASE("a repeated key is refused", "[report][errors]") {
    const TemporaryFolder folder;
    const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
    REQUIRE(
        contains(refused_header(folder, "{" + a + "," + a + "}", 4), R"(has "a" twice)"));
    REQUIRE(contains(
        refused_header(
            folder,
            R"({"a":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}})"),
        R"(has "dtype" twice)"));
    REQUIRE(contains(refused_header(folder, R"({"__metadata__":{"k":"1","k":"2"}})", 0),
                     R"(has "k" twice)"));
}

TEST_CASE("a wrong description is refused with the tensor's name", "[report][errors]") {
    const TemporaryFolder folder;
    const auto lie = [&](const std::string& description) {
        return refused_header(folder, R"({"w":)" + description + "}", 8);
    };
    const std::string who = R"(bad.safetensors: tensor "w": )";
    REQUIRE(contains(lie("1"), who + "its description must have"));
    REQUIRE(contains(lie("{}"), who + "its description must have"));
    REQUIRE(contains(lie(R"({"dtype":"F64","shape":[1],"data_offsets":[0,8],"x":1})"),
                     who + "its description must have"));
    REQUIRE(contains(lie(R"({"dtype":"F7","shape":[1],"data_offsets":[0,8]})"),
                     who + R"(dtype "F7"; F64, F32, I32 and BF16 can be read)"));
    REQUIRE(contains(lie(R"({"dtype":3,"shape":[1],"data_offsets":[0,8]})"),
                     who + "its dtype is not a string"));
    REQUIRE(contains(lie(R"({"dtype":"F64","shape":1,"data_offsets":[0,8]})"),
                     who + "its shape is not an array"));
    REQUIRE(contains(lie(R"({"dtype":"F64","shape":[-1],"data_offsets":[0,8]})"),
                     who + R"(its shape has "-1")"));
    REQUIRE(contains(lie(R"({"dtype":"F64","shape":[1.0],"data_offsets":[0,8]})"),
                     who + R"(its shape has "1.0")"));
    REQUIRE(contains(lie(R"({"dtype":"F64","shape":[1],"data_offsets":[0]})"),
                     who + "its data_offsets are not two offsets"));
    REQUIRE(contains(lie(R"({"dtype":"F64","shape":[1],"data_offsets":[-8,0]})"),
                     who + "its data_offsets are not two offsets"));
    REQUIRE(contains(refused_header(folder, R"({"__metadata__":{"k":1}})", 0),
                     "__metadata__ must map names to strings"));
}

TEST_CASE("false shapes and offsets are refused before memory is taken",
          "[report][errors]") {
    const TemporaryFolder folder;
    const auto lie = [&](const std::string& shape, const std::string& offsets) {
        return refused_header(folder, R"({"w":{"dtype":"F64","shape":)" + shape +
                                          R"(,"data_offsets":)" + offsets + "}}");
    };
    const std::string who = R"(tensor "w": )";
    REQUIRE(contains(lie("[4294967296,4294967296]", "[0,0]"),
                     who + "its shape has more elements than can be addressed"));
    REQUIRE(contains(lie("[18446744073709551615]", "[0,8]"), who + "its shape has more"));
    REQUIRE(
        contains(lie("[0,18446744073709551615]", "[0,0]"), who + "its shape has more"));
    REQUIRE(contains(lie("[2305843009213693953]", "[0,8]"), who + "its shape has more"));
    REQUIRE(contains(
        lie("[1000000000000]", "[0,8000000000000]"),
        who + "its data ends at 8000000000000, but the file has 8 bytes of data"));
    REQUIRE(contains(lie("[2]", "[0,8]"),
                     who + "F64 of shape (2) needs 16 bytes, but its offsets span 8"));
    REQUIRE(
        contains(lie("[1]", "[8,0]"), who + "its data ends at 0, before it begins at 8"));
    REQUIRE(contains(lie("[1]", "[18446744073709551608,0]"), who + "its data ends at 0"));
}

TEST_CASE("tensors that overlap or leave gaps are refused", "[report][errors]") {
    const TemporaryFolder folder;
    const auto lie = [&](const char* first, const char* second, std::size_t bytes) {
        const auto entry = [](const char* name, const char* offsets) {
            return std::string("\"") + name +
                   R"(":{"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}";
        };
        return refused_header(
            folder, "{" + entry("a", first) + "," + entry("b", second) + "}", bytes);
    };
    REQUIRE(lie("[0,8]", "[8,16]", 16) == "");
    REQUIRE(contains(lie("[0,8]", "[0,8]", 8),
                     R"(tensor "b": its data begins at 0, but the data)"));
    REQUIRE(contains(lie("[0,8]", "[4,12]", 12), "ends at 8: they overlap"));
    REQUIRE(contains(lie("[0,8]", "[12,20]", 20), "ends at 8: they leave a gap"));
    REQUIRE(
        contains(lie("[4,12]", "[12,20]", 20), R"(tensor "a": its data begins at 4)"));
    REQUIRE(contains(lie("[0,8]", "[8,16]", 17), "1 bytes after the last tensor"));
    REQUIRE(contains(lie("[0,8]", "[8,16]", 15), "but the file has 15 bytes of data"));
}

TEST_CASE("changed bytes are either read or refused", "[report][errors]") {
    const TemporaryFolder folder;
    write_safetensors(folder / "t", some_tensors(), {{"k", "v"}});
    const std::string whole = read_file(folder / "t");
    std::uint64_t state = 1;
    const auto random = [&](std::uint64_t below) {
        state = state * 6364136223846793005 + 1442695040888963407;
        return (state >> 33) % below;
    };
    const std::string alphabet = "{}[]\":,0123456789-eE.F \\u\xff";
    int read = 0;
    for (int round = 0; round < 4000; ++round) {
        std::string bytes = whole;
        for (std::uint64_t change = 0; change <= random(3); ++change) {
            const std::size_t at = random(bytes.size());
            if (random(4) == 0)
                bytes.erase(at, 1 + random(9));
            else if (random(3) == 0)
                bytes.insert(at, 1, alphabet[random(alphabet.size())]);
            else
                bytes[at] = alphabet[random(alphabet.size())];
        }
        write_file(folder / "mutant", bytes);
        try {
            read_safetensors(folder / "mutant");
            ++read;
        } catch (const UsageError&) {
        }
    }
    REQUIRE(read > 0);
    REQUIRE(read < 4000);
}

TEST_CASE("a file that cannot be opened is named", "[report][errors]") {
    const TemporaryFolder folder;
    try {
        read_safetensors(folder / "nowhere");
        FAIL("a file that is not there was read");
    } catch (const std::system_error& error) {
        REQUIRE(contains(error.what(), "nowhere: No such file"));
    }
    REQUIRE(contains(refusal([&] { read_safetensors(folder.path()); }),
                     "this is not a file"));
    REQUIRE(
        contains(refusal([&] { read_safetensors("/dev/zero"); }), "this is not a file"));
    REQUIRE_THROWS_AS(write_safetensors(folder / "no/such/t", {}), std::system_error);
    REQUIRE(contains(refusal([&] {
                         write_safetensors(folder / "t", {{"\xff", {}}});
                     }),
                     "UTF-8"));
    REQUIRE(contains(refusal([&] {
                         write_safetensors(folder / "t", {{"__metadata__", {}}});
                     }),
                     "__metadata__"));
    REQUIRE(entries_in(folder.path()) == 0);
}

TEST_CASE("on a full disk the earlier file stays, and no other file is left",
          "[report][errors]") {
    const TemporaryFolder folder;
    write_safetensors(folder / "t", some_tensors());
    const FullDisk full(1 << 10);
    const NamedTensors large{{"large", HostTensor(Shape{1000}, DType::f64)}};
    REQUIRE_THROWS_AS(write_safetensors(folder / "t", large), std::system_error);
    REQUIRE(entries_in(folder.path()) == 1);
    REQUIRE(read_safetensors(folder / "t") == some_tensors());
}
