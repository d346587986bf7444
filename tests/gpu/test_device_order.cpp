#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "gpu/check.hpp"
#include "src/device/ledger.hpp"
#include "tests/gpu/device_support.hpp"

// Streams and waiting: operations run in the order in which the host asked for them, even
// on several devices, and a wait can be ended.

namespace lockstep::test {

namespace {

/// Keeps a stream busy, so that later work is late.
void keep_busy(Device& device, const Tensor& x, int times = 20) {
    for (int i = 0; i < times; ++i) {
        device.scale(x, 2);
        device.scale(x, 0.5);
    }
}

HostTensor ids_of(const std::vector<std::int32_t>& ids) {
    return HostTensor::of({static_cast<std::int64_t>(ids.size())}, ids);
}

}  // namespace

TEST_CASE("A read from another device comes after the operations requested there before",
          "[gpu][device]") {
    const std::int64_t count = 100000;
    Bench reader;
    PlainMonitor monitor;
    const std::unique_ptr<Device> writer = make_device(1, monitor);
    const Tensor there = writer->zeros({count}, DType::f32);
    const Tensor here = reader->zeros({count}, DType::f32);
    const Tensor sum = reader->zeros({count}, DType::f32);
    for (int round = 1; round <= 20; ++round) {
        keep_busy(*writer, there, 3);
        writer->fill(there, round);
        reader->transfer(here, there);
        reader->transfer_combine(sum, there, Reduction::sum);
        // The host asked for the reads first, so they must not see this value.
        writer->fill(there, -1);
        const HostTensor got = reader->download(here);
        for (const std::int64_t i : {std::int64_t{0}, count / 2, count - 1})
            REQUIRE(got.at(i) == round);
    }
    REQUIRE(reader->download(sum).at(count - 1) == 210);
}

TEST_CASE("Memory that another device reads is not reused before the read",
          "[gpu][device]") {
    const std::int64_t count = 100000;
    Bench reader;
    PlainMonitor monitor;
    const std::unique_ptr<Device> writer = make_device(1, monitor);
    const Tensor busy = reader->zeros({count}, DType::f32);
    std::vector<Tensor> copies;
    for (int round = 0; round < 10; ++round) {
        const Tensor there = writer->empty({count}, DType::f32);
        writer->fill(there, round);
        keep_busy(*reader.device, busy, 3);
        copies.push_back(reader->empty({count}, DType::f32));
        reader->transfer(copies.back(), there);
    }
    for (std::size_t round = 0; round < copies.size(); ++round)
        REQUIRE(reader->download(copies[round]).at(count - 1) ==
                static_cast<double>(round));
}

TEST_CASE("Values to upload may be freed when the call returns",
          "[gpu][device][sanitizer]") {
    const std::int64_t count = GENERATE(100, 1000000);
    Bench bench;
    const Tensor x = bench->zeros({count}, DType::f32);
    keep_busy(*bench.device, x, 3);
    {
        HostTensor values({count}, DType::f32);
        values.set(count - 1, 7);
        bench->upload_into(x, values);
        values.set(count - 1, 8);
    }
    REQUIRE(bench->download(x).at(count - 1) == 7);
}

TEST_CASE(
    "A wait for the device calls its callback again and again, which can end the wait",
    "[gpu][device]") {
    struct Enough {};
    PlainMonitor monitor;
    int asked = 0;
    bool enough = false;
    gpu::DeviceOptions options;
    options.while_waiting = [&] {
        ++asked;
        if (enough) throw Enough();
    };
    gpu::Device device(0, monitor, options);
    const Tensor x = device.zeros({4000000}, DType::f32);
    while (asked == 0) {
        keep_busy(device, x);
        device.synchronize();
    }
    enough = true;
    const auto wait_until_asked = [&] {
        for (;;) {
            keep_busy(device, x);
            device.synchronize();
        }
    };
    REQUIRE_THROWS_AS(wait_until_asked(), Enough);
    enough = false;
    device.fill(x, 3);
    REQUIRE(device.download(x).at(0) == 3);
}

TEST_CASE("The host does not wait before it uses uploaded indices", "[gpu][device]") {
    PlainMonitor monitor;
    int asked = 0;
    gpu::DeviceOptions options;
    options.while_waiting = [&] { ++asked; };
    gpu::Device device(0, monitor, options);
    const Tensor x = device.zeros({4000000}, DType::f32);
    const Tensor table = device.zeros({10, 4}, DType::f32);
    const Tensor ids = device.upload(ids_of({0, 9}));
    keep_busy(device, x);
    device.embedding(table, ids);
    REQUIRE(asked == 0);
}

TEST_CASE("Overwritten indices are checked again", "[gpu][device][errors]") {
    Bench bench;
    const Tensor table = bench->zeros({10, 4}, DType::f32);
    const HostTensor good = ids_of({0, 9});
    const HostTensor bad = ids_of({0, 10});
    const Tensor ids = bench->upload(good);
    bench->embedding(table, ids);
    const Tensor other = bench->upload(bad);
    const std::vector<std::function<void()>> writes{
        [&] { bench->upload_into(ids, bad); },
        [&] { bench->upload_into(ids.slice(1, 1), ids_of({10})); },
        [&] { bench->upload_into(ids.slice(1, 1), ids_of({-1})); },
        [&] { bench->copy(ids, other); },
        [&] { bench->transfer(ids, other); },
    };
    for (const std::function<void()>& write : writes) {
        bench->upload_into(ids, good);
        bench->embedding(table, ids);
        write();
        REQUIRE_THROWS_WITH(bench->embedding(table, ids),
                            Catch::Matchers::ContainsSubstring("index 1 is"));
    }
}

TEST_CASE("The message of a full GPU names the request, the free memory and the rest",
          "[gpu][device][errors]") {
    Bench bench;
    const Tensor held = bench->zeros({1 << 18}, DType::f32);
    const std::int64_t too_much = std::int64_t{1} << 44;
    std::string sentence;
    try {
        const MemoryScope scope(*bench.device, MemoryCategory::gradients);
        bench->empty({too_much}, DType::f32);
    } catch (const OutOfMemoryError& error) {
        sentence = error.diagnosis().text(1000);
    }
    CAPTURE(sentence);
    for (const char* said : {"rank 0 is out of memory: 64 TiB more for gradients at "
                             "tests/gpu/test_device_order.cpp:",
                             " does not fit, because only ", "iB are free",
                             "in 1 tensor of activations made at "})
        REQUIRE(sentence.find(said) != std::string::npos);
    REQUIRE(bench->live() == held.storage());
    bench->fill(held, 2);
    REQUIRE(bench->download(held).at(5) == 2);
}

TEST_CASE("Devices that exist one after another take no more memory than one",
          "[gpu][device]") {
    const auto free_after_product = [] {
        Bench bench;
        const Tensor a = bench->zeros({64, 64}, DType::f32);
        bench->download(bench->matmul(a, a));
        std::size_t free = 0;
        std::size_t total = 0;
        GPU_CHECK(cudaMemGetInfo(&free, &total));
        return static_cast<double>(free);
    };
    const double first = free_after_product();
    double last = first;
    for (int device = 0; device < 10; ++device)
        last = free_after_product();
    // Each workspace of cuBLAS would need 4 MiB or more.
    REQUIRE(first - last < 20 << 20);
}

namespace {

/// Returns the largest error of a product's elements, relative to the sum of the
/// magnitudes of the element's terms.
double worst_error(const HostTensor& product, const HostTensor& a, const HostTensor& b) {
    const std::int64_t rows = a.shape().matrix_rows();
    const std::int64_t inner = a.shape().columns();
    const std::int64_t columns = b.shape().columns();
    double worst = 0;
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
            double sum = 0;
            double size = 0;
            for (std::int64_t l = 0; l < inner; ++l) {
                const double term = a.at(i * inner + l) * b.at(l * columns + j);
                sum += term;
                size += std::abs(term);
            }
            worst = std::max(worst, std::abs(product.at(i * columns + j) - sum) / size);
        }
    return worst;
}

}  // namespace

TEST_CASE("A product in TF32 has only the error of its operands' rounding",
          "[gpu][device]") {
    const std::int64_t inner = 16;
    const HostTensor a = random_values({256, inner}, DType::f32, "a");
    const HostTensor b = random_values({inner, 256}, DType::f32, "b");
    const auto error_of_product = [&](bool tf32) {
        PlainMonitor monitor;
        gpu::DeviceOptions options;
        options.tf32 = tf32;
        gpu::Device device(0, monitor, options);
        return worst_error(
            device.download(device.matmul(device.upload(a), device.upload(b))), a, b);
    };

    // If an operand keeps 10 bits after the leading 1, any rounding makes an error of at
    // most one part in 2^10. The error of a product is at most twice this error, plus its
    // square. Both kinds of products are added up in f32.
    const double rounding = 0x1p-10;
    const double addition = static_cast<double>(inner) * 0x1p-23;
    CHECK(error_of_product(false) <= addition);
    // cuBLAS may use TF32 or not; lesson_test.py checks that the emulator does.
    CHECK(error_of_product(true) <= 2 * rounding + rounding * rounding + addition);
}

TEST_CASE("A product is the same bits every time, with TF32 or without",
          "[gpu][device]") {
    const bool tf32 = GENERATE(false, true);
    PlainMonitor monitor;
    gpu::DeviceOptions options;
    options.tf32 = tf32;
    gpu::Device device(0, monitor, options);
    const Tensor a = device.upload(random_values({64, 96}, DType::f32, "a"));
    const Tensor b = device.upload(random_values({96, 80}, DType::f32, "b"));
    const HostTensor first = device.download(device.matmul(a, b));
    for (int again = 0; again < 5; ++again)
        REQUIRE(device.download(device.matmul(a, b)) == first);

    const Tensor x = device.upload(random_values({40, 2, 48}, DType::f32, "x"));
    const Heads queries{x, 2, 8, 0}, keys{x, 2, 8, 16}, values{x, 2, 8, 32};
    const auto attended = [&] {
        return device.download(
            device.head_sums(device.head_products(queries, keys, 0.3), values));
    };
    const HostTensor first_attended = attended();
    for (int again = 0; again < 5; ++again)
        REQUIRE(attended() == first_attended);
}

}  // namespace lockstep::test
