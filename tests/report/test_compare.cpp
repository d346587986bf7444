#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/report/compare.hpp"
#include "src/report/record.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::WithinRel;
using Library = nlohmann::json;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

NamedTensors one(const std::string& name, const std::vector<double>& values) {
    return {{name,
             HostTensor::of<double>({static_cast<std::int64_t>(values.size())}, values)}};
}

bool passes(const std::vector<double>& a, const std::vector<double>& b,
            std::optional<double> bound = std::nullopt) {
    return compare_tensors(one("x", a), one("x", b), bound).passed();
}

std::filesystem::path record_of(const TemporaryFolder& folder, const std::string& name,
                                DType dtype, std::int64_t sum_length,
                                NamedTensors outputs) {
    Record record;
    record.options.lesson = "test";
    record.options.dtype = dtype;
    record.options.sum_length = sum_length;
    record.outputs = std::move(outputs);
    write_record(folder / name, record);
    return folder / name;
}

}  // namespace

TEST_CASE("equal tensors pass, even if all are zero", "[report]") {
    REQUIRE(passes({1, 2}, {1, 2}));
    REQUIRE(passes({0, 0}, {0, 0}, 0));
    REQUIRE(passes({}, {}));
}

TEST_CASE("the largest difference is found, with its place and values", "[report]") {
    const NamedTensors a{{"w", HostTensor::of<double>({2, 3}, {1, 2, 3, 4, 5, -8})}};
    const NamedTensors b{{"w", HostTensor::of<double>({2, 3}, {1, 2.5, 3, 4, 7, -8})}};
    const Comparison comparison = compare_tensors(a, b, 0.1);
    const TensorDifference& w = comparison.tensors.at(0);
    REQUIRE(w.largest_absolute == 2);
    REQUIRE(w.largest_relative == 0.25);
    REQUIRE(w.at == 4);
    REQUIRE(w.a == 5);
    REQUIRE(w.b == 7);
    REQUIRE_FALSE(comparison.passed());
    REQUIRE(compare_tensors(a, b, 0.25).passed());
    REQUIRE(contains(comparison.text(), "FAILED"));
    REQUIRE(contains(comparison.text(), "at [1, 1]: 5 in A, 7 in B"));
}

TEST_CASE("the bound is 8 sqrt(K) epsilon of the less precise dtype", "[report]") {
    REQUIRE_THAT(sum_bound(DType::f64, 25), WithinRel(40 * 0x1p-52, 1e-15));
    REQUIRE_THAT(sum_bound(DType::f32, 1), WithinRel(8 * 0x1p-23, 1e-15));
    REQUIRE(sum_bound(DType::i32, 100) == 0);
    REQUIRE(passes({1}, {1 + 8 * 0x1p-52}));
    REQUIRE_FALSE(passes({1}, {1 + 9 * 0x1p-52}));
    NamedTensors a = one("x", {1});
    const NamedTensors b{{"x", HostTensor::of<float>({1}, {1 + 0x1p-22f})}};
    REQUIRE(compare_tensors(a, b, std::nullopt).passed());
    a = one("x", {1 + 0x1p-19});
    REQUIRE_FALSE(compare_tensors(a, b, std::nullopt).passed());
}

TEST_CASE("a NaN never passes, even on both sides and with any bound",
          "[report][errors]") {
    REQUIRE_FALSE(passes({kNaN}, {kNaN}));
    REQUIRE_FALSE(passes({1, kNaN}, {1, 2}));
    REQUIRE_FALSE(passes({1, 2}, {kNaN, 2}, kInfinity));
    REQUIRE_FALSE(passes({kNaN}, {kNaN}, 0));
    REQUIRE_FALSE(passes({1}, {1}, kNaN));
    const Comparison comparison =
        compare_tensors(one("x", {1, kNaN, 9}), one("x", {1, 2, 3}), 1.);
    REQUIRE(comparison.tensors[0].at == 1);
    REQUIRE(Library::parse(comparison.json())["tensors"][0]["largest_absolute"] == "NaN");
}

TEST_CASE("an infinity equals itself, and hides no other difference", "[report]") {
    REQUIRE(passes({kInfinity, 1}, {kInfinity, 1}));
    REQUIRE_FALSE(passes({kInfinity}, {-kInfinity}));
    REQUIRE_FALSE(passes({kInfinity}, {1}));
    REQUIRE_FALSE(passes({kInfinity, 1}, {kInfinity, 2}));
}

TEST_CASE("a bound of zero asks for the same bits", "[report]") {
    REQUIRE(passes({1, -0.}, {1, -0.}, 0));
    REQUIRE_FALSE(passes({1, 0.}, {1, -0.}, 0));
    REQUIRE(passes({1, 0.}, {1, -0.}));
    REQUIRE_FALSE(passes({1}, {1 + 0x1p-52}, 0));
}

TEST_CASE("integers must be equal with any bound", "[report]") {
    const NamedTensors a{{"i", HostTensor::of<std::int32_t>({2}, {1000, 2})}};
    const NamedTensors b{{"i", HostTensor::of<std::int32_t>({2}, {1001, 2})}};
    REQUIRE(compare_tensors(a, a, std::nullopt).passed());
    REQUIRE_FALSE(compare_tensors(a, b, 1.).passed());
}

TEST_CASE("tensors that do not match are named with the reason", "[report][errors]") {
    NamedTensors a = one("both", {1});
    a["here"] = HostTensor(Shape{2}, DType::f32);
    a["shape"] = HostTensor(Shape{2, 3}, DType::f32);
    a["type"] = HostTensor(Shape{1}, DType::i32);
    NamedTensors b = one("both", {1});
    b["shape"] = HostTensor(Shape{3, 2}, DType::f32);
    b["there"] = HostTensor(Shape{2}, DType::f32);
    b["type"] = HostTensor(Shape{1}, DType::f32);
    const Comparison comparison = compare_tensors(a, b, std::nullopt);
    REQUIRE_FALSE(comparison.passed());
    REQUIRE(comparison.text() ==
            R"(        tensor  shape   absolute  relative  bound     at
FAILED  here    (2)     -         -         -
        only in A
FAILED  shape   (2, 3)  -         -         -
        shapes (2, 3) and (3, 2)
FAILED  there   (2)     -         -         -
        only in B
FAILED  type    (1)     -         -         -
        dtypes i32 and f32
ok      both    (1)     0         0         1.78e-15
5 tensors: 4 FAILED.
)");
    REQUIRE(Library::parse(comparison.json())["tensors"][1]["problem"] == "only in A");
}

TEST_CASE("the largest difference is shown with its place, passed or not", "[report]") {
    NamedTensors a{{"w", HostTensor::of<double>({2, 2}, {1, 2, 3, 4})}};
    NamedTensors b{{"w", HostTensor::of<double>({2, 2}, {1, 2, 3.25, 4})}};
    REQUIRE(compare_tensors(a, b, 0.1).text() ==
            R"(    tensor  shape   absolute  relative  bound     at
ok  w       (2, 2)  2.50e-01  6.25e-02  1.00e-01  [1, 0]
1 tensor: all within their bounds, so rounding explains the differences; the largest relative difference is 6.25e-02 (w).
)");
    REQUIRE(Library::parse(compare_tensors(a, b, 0.1).json())["tensors"][0]["at"] == 2);
}

TEST_CASE("a comparison of nothing does not pass", "[report][errors]") {
    const Comparison nothing = compare_tensors({}, {}, std::nullopt);
    REQUIRE_FALSE(nothing.passed());
    REQUIRE(contains(nothing.text(), "nothing to compare"));
    REQUIRE(Library::parse(nothing.json())["passed"] == false);
}

TEST_CASE("records are compared within the bound of their dtypes and sums", "[report]") {
    const TemporaryFolder folder;
    const auto a = record_of(folder, "a", DType::f64, 1, one("x", {1}));
    const auto near =
        record_of(folder, "near", DType::f64, 100, one("x", {1 + 79 * 0x1p-52}));
    const auto far =
        record_of(folder, "far", DType::f64, 100, one("x", {1 + 81 * 0x1p-52}));
    const auto coarse =
        record_of(folder, "coarse", DType::f32, 1, one("x", {1 + 0x1p-22}));
    REQUIRE(compare_records(a, a, 0).passed());
    REQUIRE(compare_records(a, near, std::nullopt).passed());
    REQUIRE(compare_records(near, a, std::nullopt).passed());
    REQUIRE_FALSE(compare_records(a, far, std::nullopt).passed());
    REQUIRE(compare_records(a, far, 1e-10).passed());
    REQUIRE(compare_records(a, coarse, std::nullopt).passed());
    REQUIRE(contains(compare_records(a, near, std::nullopt).text(),
                     "1 tensor: all within their bounds, so rounding explains the "
                     "differences; the largest relative difference is 1.75e-14 (x)."));
    REQUIRE(contains(compare_records(a, a, std::nullopt).text(), "1 tensor: all equal."));
}

TEST_CASE("a folder that is no record is refused with a message", "[report][errors]") {
    const TemporaryFolder folder;
    const auto a = record_of(folder, "a", DType::f64, 1, one("x", {1}));
    const auto refused = [&](const std::filesystem::path& b) {
        return refusal([&] { compare_records(a, b, std::nullopt); });
    };
    REQUIRE(contains(refused(folder / "no"), "no: there is no such folder"));
    REQUIRE(contains(refused(folder.path()),
                     "holds no record of a run: run.json is missing"));
    REQUIRE(contains(refused(a / "run.json"), "there is no such folder"));
    write_file(a / "run.json", "{}");
    REQUIRE(contains(refused(a), "run.json: this is not the run.json of a record"));
}

TEST_CASE("a run that computed only shapes cannot be compared", "[report][errors]") {
    const TemporaryFolder folder;
    const auto a = record_of(folder, "a", DType::f64, 1, one("x", {1}));
    Record shapes;
    shapes.options.lesson = "lesson";
    shapes.options.settings["numerics"] = "off";
    write_record(folder / "shapes", shapes);
    REQUIRE(
        contains(refusal([&] { compare_records(a, folder / "shapes", std::nullopt); }),
                 "shapes: this run computed shapes only (numerics=off), so there are no "
                 "numbers to "
                 "compare"));
}
