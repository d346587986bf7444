#include <algorithm>
#include <array>
#include <new>
#include <system_error>
#include <unistd.h>

#include "lessons/runner/backend.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/runner/utf8.hpp"
#include "src/device/ledger.hpp"
#include "src/core/require.hpp"
#include "src/report/diagnosis.hpp"

namespace lockstep::lessons {

namespace {

/// Where standard error is gone too, only the status is left to tell.
void complain(const std::string& text) {
    try {
        write_all(STDERR_FILENO, text, "standard error");
    } catch (const std::system_error&) {
    }
}

int say(const std::string& sentence, int status) {
    complain("lockstep: " + printable(sentence) + "\n");
    return status;
}

/// Errors of the system are the learner's where another name would have helped.
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

}  // namespace

int report_exception() {
    try {
        throw;
    } catch (const FaultError& fault) {
        std::string text = fault.diagnosis().text(window_columns(STDERR_FILENO));
        if (!text.ends_with('\n')) text += '\n';
        complain(text);
        return kFailed;
    } catch (const OutOfMemoryError& full) {
        complain(std::string("lockstep: ") + full.what() + "\n");
        return kFailed;
    } catch (const UsageError& error) {
        return say(error.what(), kUsage);
    } catch (const MissingError& error) {
        return say(error.what(), kLacking);
    } catch (const std::system_error& error) {
        // Whoever read the output has had enough of it, as in `lockstep lessons | head
        // -1`.
        constexpr int kPipeSignalled = 128 + 13;
        if (error.code() == std::errc::broken_pipe) return kPipeSignalled;
        return say(error.what(), status_of(error.code()));
    } catch (const std::bad_alloc&) {
        return say("there is not enough memory for this", kLacking);
    } catch (const std::exception& error) {
        return say(std::string("a mistake of Lockstep itself: ") + error.what(), kFailed);
    } catch (...) {
        return say("a mistake of Lockstep itself", kFailed);
    }
}

}  // namespace lockstep::lessons
