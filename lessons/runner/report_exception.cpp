#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <system_error>
#include <unistd.h>

#include "gpu/kernels/error.hpp"
#include "gpu/launcher/control.hpp"
#include "lessons/runner/backend.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/run/diagnosis.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// If standard error is gone too, only the status is left to tell.
void complain(const std::string& text) {
    try {
        write_all(STDERR_FILENO, text, "standard error");
    } catch (const std::system_error&) {
    }
}

CommandEnding sentence(const std::string& text, int status) {
    return {status, "lockstep: " + printable(text) + "\n"};
}

/// Errors of the system are the learner's if another name would have helped.
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

/// Returns the sentence of an error of the standard library's file functions, whose own
/// text is "filesystem error: cannot copy: No space left on device [a] [b]".
std::string sentence_of(const std::filesystem::filesystem_error& error) {
    std::string text = error.path1().string();
    if (!error.path2().empty()) text += " to " + error.path2().string();
    return (text.empty() ? "" : text + ": ") + error.code().message();
}

}  // namespace

CommandEnding ending_of_exception() {
    try {
        throw;
    } catch (const FaultError& fault) {
        std::string text = fault.diagnosis().text(window_columns(STDERR_FILENO));
        if (!text.ends_with('\n')) text += '\n';
        return {kFailed, text};
    } catch (const gpu::RunStopped& stopped) {
        return {stopped.failure().status, ""};  // rank 0 has said it
    } catch (const UsageError& error) {
        return sentence(error.what(), kUsage);
    } catch (const MissingError& error) {
        return sentence(error.what(), kLacking);
    } catch (const std::system_error& error) {
        // Whoever read the output has had enough of it, as in `lockstep lessons | head
        // -1`.
        constexpr int kPipeSignalled = 128 + 13;
        if (error.code() == std::errc::broken_pipe) return {kPipeSignalled, ""};
        const auto* of_file =
            dynamic_cast<const std::filesystem::filesystem_error*>(&error);
        return sentence(of_file == nullptr ? error.what() : sentence_of(*of_file),
                        status_of(error.code()));
    } catch (const gpu::GpuError& error) {
        return sentence(error.what(), kLacking);
    } catch (const std::bad_alloc&) {
        return sentence("there is not enough memory for this", kLacking);
    } catch (const std::exception& error) {
        return sentence(std::string("a mistake of Lockstep itself: ") + error.what(),
                        kBroken);
    } catch (...) {
        return sentence("a mistake of Lockstep itself", kBroken);
    }
}

int report_exception() {
    const CommandEnding ending = ending_of_exception();
    complain(ending.text);
    return ending.status;
}

}  // namespace lockstep::lessons
