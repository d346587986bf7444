#pragma once

#include <memory>
#include <string>

#include "lessons/02_column_linear/mlp.hpp"
#include "lessons/02_column_linear/pass.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's steps, and what later ones need of earlier ones. Steps 1 to 4 are in
/// lesson.cpp, 5 and 6 in mlp_step.cpp.
class ColumnLinear final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    ColumnLinear(const LessonOptions& options, Record& record);

    std::vector<Step> steps() override;

  private:
    void multiply_by_columns(Page& page);
    void find_the_layer(Page& page);
    void split_columns(Page& page);
    void split_rows(Page& page);
    void pair(Page& page);
    void count_bytes(Page& page);

    void show_square_layer(Page& page);
    void show_partial_gradients(Page& page, const Task& task, const RunReport& without,
                                const RunReport& alone);
    void show_partial_outputs(Page& page, const Task& task, const RunReport& alone);
    /// After the numbers of the first kShownRanks devices.
    void show_rest(Page& page) const;
    void show_gelu_of_a_sum(Page& page);
    void check_all_reduce(Page& page, const RunReport& report, const std::string& half,
                          const std::string& tensor);
    /// factor (t-1)/t of the bytes of a buffer whose elements the ranks divide.
    std::int64_t sent(std::int64_t factor, std::int64_t bytes) const;
    void record_rows(const Task& task, const RunReport& together);
    void record_mlp(const Task& alone);
    void show_bytes(Page& page, const RunReport& gathered);
    void show_time(Page& page, const RunReport& gathered);
    void show_larger_layers(Page& page);

    /// Checks of values; in a run of shapes only there are none.
    void check_equal(Page& page, const std::string& name, std::int64_t figure);
    void check_bound(Page& page, const std::string& name, double difference);

    /// The example's three devices, whatever the ranks.
    std::unique_ptr<Cluster> example_cluster() const;
    bool lacks_example_ranks() const;
    /// The task on one device, on all ranks, and on all ranks as a mistake
    /// that --check full is not to stop.
    RunReport pass_alone(const Task& task, bool trace = false) const;
    RunReport pass_together(const Task& task, bool trace = false) const;
    RunReport pass_wrongly(const Task& task) const;

    static constexpr int kExampleRanks = 3;
    static constexpr int kShownRanks = 4;

    int ranks_;
    MlpSizes sizes_;
    RunReport mlp_alone_;
    RunReport mlp_together_;
};

/// A layer by rows from 2t to t columns, t the ranks, of whole numbers
/// that are small enough for a pencil.
Task rows_task(const LessonOptions& options, int ranks);

/// The lesson `column-linear`: a linear layer on several devices, by columns and by rows.
LessonEntry column_linear_lesson();

}  // namespace lockstep::lessons
