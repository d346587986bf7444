#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/device/monitor.hpp"

namespace lockstep::test {

/// A monitor that computes each operation's numbers immediately, and counts operations.
class PlainMonitor final : public DeviceMonitor {
  public:
    struct Operation {
        std::string name;
        std::int64_t flops;
        std::int64_t bytes;
        DType dtype;
        std::vector<const Storage*> reads;
        std::vector<const Storage*> writes;
        SourceLine at;
    };

    explicit PlainMonitor(bool numbers = true) : numbers_(numbers) {}

    void execute(const DeviceOperation& operation, FunctionRef<void()> numbers) override {
        Operation kept{
            operation.name, operation.flops, operation.bytes, operation.dtype, {}, {},
            operation.at};
        for (const Tensor* tensor : operation.reads)
            kept.reads.push_back(tensor->storage());
        for (const Tensor* tensor : operation.writes)
            kept.writes.push_back(tensor->storage());
        operations.push_back(kept);
        if (numbers_) numbers();
    }

    void copy(CopyDirection direction, const Tensor& tensor, SourceLine,
              FunctionRef<void()> move) override {
        copied_bytes[direction] += tensor.bytes();
        move();
    }

    void allocated(const Storage& storage) override {
        if (held_bytes + storage.bytes > capacity) throw OutOfMemory();
        held_bytes += storage.bytes;
        bytes_of_category[storage.category] += storage.bytes;
        ++allocations;
    }
    void freed(const Storage& storage) noexcept override {
        held_bytes -= storage.bytes;
        bytes_of_category[storage.category] -= storage.bytes;
        ++frees;
    }

    void phase_began(Phase phase, int micro_batch, SourceLine) override {
        phases.push_back(std::string(name_of(phase)) + " " + std::to_string(micro_batch));
    }
    void phase_ended() noexcept override { phases.emplace_back("end"); }

    bool has_numbers() const override { return numbers_; }

    struct OutOfMemory : std::runtime_error {
        OutOfMemory() : std::runtime_error("out of memory") {}
    };

    std::vector<Operation> operations;
    std::map<CopyDirection, std::int64_t> copied_bytes;
    std::int64_t capacity = INT64_MAX;
    std::int64_t held_bytes = 0;
    std::map<MemoryCategory, std::int64_t> bytes_of_category;
    int allocations = 0;
    int frees = 0;
    std::vector<std::string> phases;

  private:
    bool numbers_;
};

}  // namespace lockstep::test
