#include <cstddef>
#include <type_traits>
#include <vector>

#include "src/device/local_device.hpp"
#include "src/device/operations/matrix.hpp"
#include "tests/catch.hpp"
#include "tests/device/plain_monitor.hpp"

// The simulator and the emulator always compute products row by row. So these tests need
// a device that records the options of each call.

namespace lockstep::test {

namespace {

/// Computes nothing. Only records the options of each requested product.
class AskedDevice final : public LocalDevice {
  public:
    explicit AskedDevice(DeviceMonitor& monitor) : LocalDevice(0, monitor) {}
    ~AskedDevice() override { free_all(); }

    std::vector<MatmulOptions> asked;

  private:
    std::byte* do_allocate(const Storage& storage) override {
        return new std::byte[static_cast<std::size_t>(storage.bytes)];
    }
    void do_free(const Storage& storage) noexcept override { delete[] storage.data; }
    void do_upload(const Tensor&, const HostTensor&) override {}
    void do_download(HostTensor&, const Tensor&) override {}
    void check_indices(const Tensor&, std::int64_t) override {}
    void compute_native(OperationRef operation) override {
        operation.visit([this]<typename Op>(const Op& op) {
            if constexpr (std::is_same_v<Op, ops::Matmul>) asked.push_back(op.options);
        });
    }
};

}  // namespace

TEST_CASE("Products within RowByRow are requested row by row") {
    PlainMonitor monitor;
    AskedDevice device(monitor);
    const Tensor a = device.empty({4, 4}, DType::f32);
    const Tensor c = device.empty({4, 4}, DType::f32);
    device.matmul_into(c, a, a, {});
    {
        const RowByRow scope(device);
        device.matmul_into(c, a, a, {.transpose_b = true});
        device.matmul_into(c, a, a, {.transpose_a = true});  // never row by row
    }
    device.matmul_into(c, a, a, {});
    std::vector<bool> row_by_row;
    for (const MatmulOptions& options : device.asked)
        row_by_row.push_back(options.row_by_row);
    CHECK(row_by_row == std::vector<bool>{false, true, false, false});
}

}  // namespace lockstep::test
