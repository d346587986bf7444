#include "program/ending.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/kernels/error.hpp"
#include "gpu/launcher/control.hpp"
#include "src/core/require.hpp"
#include "src/os/descriptor.hpp"
#include "src/os/terminal.hpp"
#include "src/run/diagnosis.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::programs {

namespace {

/// Makes the endings of one program.
struct Speaker {
    std::string program;  ///< its name; empty for Lockstep itself
    int rank = -1;        ///< the rank that threw, if it is known

    Ending sentence(const std::string& text, int status) const {
        const std::string who = rank < 0 ? "" : fmt::format("rank {}: ", rank);
        return {status,
                fmt::format("{}: {}{}\n", program.empty() ? "lockstep" : program, who,
                            printable(text)),
                false};
    }
    /// Returns the ending for an exception of unknown type.
    Ending unknown(const std::string& text) const {
        if (!program.empty()) return sentence(text, kFailed);
        return sentence("a bug in Lockstep: " + text, kBroken);
    }
    Ending of_exception() const;
};

/// Returns kUsage if another file name would have helped, else kLacking.
int status_of(const std::error_code& code) {
    using std::errc;
    constexpr std::array kWrongName{errc::no_such_file_or_directory,
                                    errc::permission_denied,
                                    errc::is_a_directory,
                                    errc::not_a_directory,
                                    errc::filename_too_long,
                                    errc::file_exists,
                                    errc::directory_not_empty,
                                    errc::too_many_symbolic_link_levels,
                                    errc::operation_not_permitted,
                                    errc::invalid_argument};
    const bool wrong = std::any_of(kWrongName.begin(), kWrongName.end(),
                                   [&](errc condition) { return code == condition; });
    return wrong ? kUsage : kLacking;
}

/// Returns a sentence for an error of the standard library's file functions. Their own
/// text is "filesystem error: cannot copy: No space left on device [a] [b]".
std::string sentence_of(const std::filesystem::filesystem_error& error) {
    std::string text = error.path1().string();
    if (!error.path2().empty()) text += " to " + error.path2().string();
    return (text.empty() ? "" : text + ": ") + error.code().message();
}

Ending Speaker::of_exception() const {
    try {
        throw;
    } catch (const FaultError& fault) {
        std::string text = fault.diagnosis().text(os::window_columns(STDERR_FILENO));
        if (!text.ends_with('\n')) text += '\n';
        return {kFailed, text, true};
    } catch (const gpu::RunStopped& stopped) {
        return {stopped.failure().status, "", false};  // rank 0 has printed it
    } catch (const UsageError& error) {
        return sentence(error.what(), kUsage);
    } catch (const MissingError& error) {
        return sentence(error.what(), kLacking);
    } catch (const std::system_error& error) {
        // The reader of the output has closed it, as in `lockstep lessons | head -1`.
        constexpr int kPipeSignalled = 128 + 13;
        if (error.code() == std::errc::broken_pipe) return {kPipeSignalled, "", false};
        const auto* of_file =
            dynamic_cast<const std::filesystem::filesystem_error*>(&error);
        return sentence(of_file == nullptr ? error.what() : sentence_of(*of_file),
                        status_of(error.code()));
    } catch (const gpu::GpuError& error) {
        return sentence(error.what(), kLacking);
    } catch (const std::bad_alloc&) {
        return sentence("there is not enough memory for this", kLacking);
    } catch (const std::exception& error) {
        return unknown(error.what());
    } catch (...) {
        return unknown("something was thrown that is no std::exception");
    }
}

}  // namespace

Ending ending_of_exception(const std::string& program, int rank) {
    return Speaker{program, rank}.of_exception();
}

int report(const Ending& ending) {
    try {
        os::write_all(STDERR_FILENO, ending.text, "standard error");
    } catch (const std::system_error&) {
    }
    return ending.status;
}

}  // namespace lockstep::programs
