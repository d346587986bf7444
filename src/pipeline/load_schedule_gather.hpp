#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// Text from a file, as a message shows it: in quotes, on one line, and cut
/// where it is long.
std::string shown_text(std::string_view text);

/// What a file says of a schedule, gathered as it is read. All throw
/// UsageError with file and line for what cannot be.
class GatheredSchedule {
  public:
    /// `file` is what messages call it.
    explicit GatheredSchedule(std::string file);

    /// A size that the file gives, and the line where it does.
    struct Size {
        int value = 0;
        int line = 0;
    };
    std::string name;
    std::optional<Size> stages;
    std::optional<Size> micro_batches;
    std::optional<Size> chunks;
    std::vector<std::vector<int>> parts;  ///< empty where it has none
    int parts_line = 0;

    /// Begins the next stage's list.
    void add_stage(int line);
    /// To the last stage's list.
    void add_instruction(std::string_view text, int line);
    int stages_so_far() const { return static_cast<int>(work_.size()); }
    int instructions_so_far() const {
        return static_cast<int>(work_.back().size());
    }

    /// All of it; sizes that were not given follow from the instructions.
    Schedule finish();

    [[noreturn]] void fail(int line, const std::string& what) const;

  private:
    /// Sizes, of which each is as the file says, or as its instructions do.
    PipelineShape shape() const;
    void take_parts(Schedule& schedule) const;
    [[noreturn]] void fail_file(const std::string& what) const;

    std::string file_;
    std::vector<std::vector<Instruction>> work_;
    int most_micro_batch_ = -1;
    int most_chunk_ = 0;
};

}  // namespace lockstep
