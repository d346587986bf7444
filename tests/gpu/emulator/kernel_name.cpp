#include <cstdint>
#include <cxxabi.h>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <link.h>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/emulator/block.hpp"
#include "tests/gpu/emulator/include/cuda_runtime.h"

namespace emulated {

namespace {

/// Returns the address at which this program's file has been loaded.
std::uintptr_t load_address() {
    std::uintptr_t address = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* result) {
            *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
            return 1;  // the first file is the program
        },
        &address);
    return address;
}

/// Returns the linker's symbol at an address. dladdr misses kernels, which are local
/// symbols.
std::string symbol_at(std::uintptr_t address) {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    if (bytes.size() < sizeof(Elf64_Ehdr)) return {};
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
    const auto* sections =
        reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
    for (int s = 0; s < header->e_shnum; ++s) {
        if (sections[s].sh_type != SHT_SYMTAB) continue;
        const char* names = bytes.data() + sections[sections[s].sh_link].sh_offset;
        const auto* symbols =
            reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[s].sh_offset);
        const std::size_t count = sections[s].sh_size / sizeof(Elf64_Sym);
        for (std::size_t i = 0; i < count; ++i)
            if (symbols[i].st_value == address &&
                ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC)
                return names + symbols[i].st_name;
    }
    return {};
}

}  // namespace

std::string kernel_name(const void* kernel) {
    const std::string symbol =
        symbol_at(reinterpret_cast<std::uintptr_t>(kernel) - load_address());
    if (symbol.empty()) return "a kernel";
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> readable(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
    return status == 0 ? readable.get() : symbol;
}

}  // namespace emulated

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
    if (kernel == nullptr) return cudaErrorInvalidValue;
    thread_local std::string latest;
    latest = emulated::kernel_name(kernel);
    *name = latest.c_str();
    return cudaSuccess;
}
