#pragma once

#include <cstdint>

#include "tests/device/support.hpp"

namespace lockstep::test {

TEST_CASE("Memory is aligned to 64 bytes", kTags) {
    Bench bench;
    std::vector<Tensor> tensors;
    for (std::int64_t i = 1; i < 50; ++i) {
        tensors.push_back(bench->empty({7 * i}, DType::f32));
        REQUIRE(reinterpret_cast<std::uintptr_t>(tensors.back().bytes_begin()) % 64 == 0);
    }
}

TEST_CASE("Memory is freed with its last tensor", kTags) {
    Bench bench;
    {
        const Tensor x = bench->empty({3, 5}, DType::f32);
        REQUIRE(bench.monitor.held_bytes == 60);
        REQUIRE(bench->live() == x.storage());
        Tensor view;
        {
            const Tensor y = bench->empty({7}, DType::f64);
            REQUIRE(bench->live() == y.storage());
            REQUIRE(y.storage()->next == x.storage());
            view = y.flat();
        }
        REQUIRE(bench.monitor.held_bytes == 60 + 56);
        view = x.rows(1, 1);
        REQUIRE(bench.monitor.held_bytes == 60);
        REQUIRE(bench->live() == x.storage());
    }
    REQUIRE(bench.monitor.held_bytes == 0);
    REQUIRE(bench.monitor.frees == 2);
    REQUIRE(bench->live() == nullptr);
}

TEST_CASE("The list of live storage stays right when any storage is freed", kTags) {
    Bench bench;
    std::vector<Tensor> tensors;
    for (std::int64_t i = 0; i < 5; ++i)
        tensors.push_back(bench->empty({i}, DType::f32));
    const auto alive = [&] {
        std::vector<std::int64_t> bytes;
        const Storage* previous = nullptr;
        for (const Storage* storage = bench->live(); storage != nullptr;
             storage = storage->next) {
            REQUIRE(storage->previous == previous);
            previous = storage;
            bytes.push_back(storage->bytes);
        }
        return bytes;
    };
    REQUIRE(alive() == std::vector<std::int64_t>{16, 12, 8, 4, 0});
    tensors[2] = Tensor();
    REQUIRE(alive() == std::vector<std::int64_t>{16, 12, 4, 0});
    tensors[4] = Tensor();
    tensors[0] = Tensor();
    REQUIRE(alive() == std::vector<std::int64_t>{12, 4});
    tensors.clear();
    REQUIRE(alive().empty());
}

TEST_CASE("Memory has the innermost scope's category, and the line that allocated it",
          kTags) {
    Bench bench;
    std::vector<Tensor> kept;
    kept.push_back(bench->empty({1}, DType::f32));
    {
        const MemoryScope parameters(*bench.device, MemoryCategory::parameters);
        kept.push_back(bench->empty({2}, DType::f32));
        {
            const MemoryScope gradients(*bench.device, MemoryCategory::gradients);
            kept.push_back(bench->empty({4}, DType::f32));
        }
        kept.push_back(bench->empty({8}, DType::f32));
    }
    kept.push_back(bench->empty({16}, DType::f32));
    const int line = __LINE__ - 1;
    auto& bytes = bench.monitor.bytes_of_category;
    REQUIRE(bytes[MemoryCategory::activations] == 4 * 17);
    REQUIRE(bytes[MemoryCategory::parameters] == 4 * 10);
    REQUIRE(bytes[MemoryCategory::gradients] == 4 * 4);
    REQUIRE(bench->live()->allocated_at.line == line);
    REQUIRE(bench->live()->device == bench.device.get());
}

TEST_CASE("If a monitor refuses memory, no memory is left", kTags) {
    Bench bench;
    bench.monitor.capacity = 100;
    const Tensor x = bench->empty({20}, DType::f32);
    REQUIRE_THROWS_AS(bench->empty({6}, DType::f32), PlainMonitor::OutOfMemory);
    REQUIRE_THROWS_AS(bench->tanh(x), PlainMonitor::OutOfMemory);
    REQUIRE(bench->live() == x.storage());
    REQUIRE(x.storage()->previous == nullptr);
    REQUIRE(bench.monitor.frees == 0);
    REQUIRE(bench.monitor.held_bytes == 80);
    bench->fill(x, 1);
}

TEST_CASE("A communicator's scratch memory is not reported", kTags) {
    Bench bench;
    bench.monitor.capacity = 0;
    {
        const Tensor scratch = bench->scratch({5}, DType::f32);
        bench->fill(scratch, 2);
        REQUIRE(bench->download(scratch).at(4) == 2);
    }
    REQUIRE(bench.monitor.allocations == 0);
    REQUIRE(bench.monitor.frees == 0);
    REQUIRE(bench->live() == nullptr);
}

TEST_CASE("Tensors may outlive their device", kTags) {
    Bench bench;
    Tensor late = bench->zeros({100}, DType::f32);
    const Tensor view = late.rows(2, 3);
    bench.device.reset();
    REQUIRE(late);
    REQUIRE(late.device() == nullptr);
    REQUIRE(late.bytes_begin() == nullptr);
    REQUIRE(view.bytes_begin() == nullptr);
    bench.device = make_device(1, bench.monitor);
    refuses("fill: destination belongs to a device that is gone",
            [&] { bench->fill(late, 1); });
    late = Tensor();
    REQUIRE(view.shape() == Shape{3});
}

TEST_CASE("Copies between host and device are reported", kTags) {
    Bench bench;
    const Tensor x = bench->upload(HostTensor({3, 4}, DType::f64));
    REQUIRE(bench.monitor.copied_bytes[CopyDirection::to_device] == 96);
    bench->download(x.rows(0, 1));
    bench->peek(x);
    REQUIRE(bench.monitor.copied_bytes[CopyDirection::to_host] == 32);
    REQUIRE(bench.monitor.operations.empty());
}

}  // namespace lockstep::test
