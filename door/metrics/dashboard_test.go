package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// served maps the name of each exported series to the values of each label, with every counter in use.
type served map[string]map[string]map[string]bool

func everything(t *testing.T) served {
	t.Helper()
	m := New()
	m.AddEngine(enginetest.Open(t, enginetest.New().In(enginetest.Options(t, enginetest.Roots(t)))))
	for _, vm := range []measure.VM{measure.Fork, measure.Clone, measure.Boot} {
		m.Started(measure.Start{VM: vm, Took: 1, NotForked: measure.Asked, Phases: []measure.Phase{{Name: "shim", Took: 1}}})
	}
	m.Stopped([]measure.Phase{{Name: "shim", Took: 1}})
	for _, method := range []string{"RunPodSandbox", "StartContainer"} {
		m.Called("runtime.v1.RuntimeService", method, codes.OK, 1)
	}
	all := served{}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		names := []string{f.GetName()}
		if f.GetType().String() == "HISTOGRAM" {
			names = []string{f.GetName() + "_bucket", f.GetName() + "_sum", f.GetName() + "_count"}
		}
		for _, name := range names {
			labels := map[string]map[string]bool{"instance": {}} // Prometheus adds it
			if strings.HasSuffix(name, "_bucket") {
				labels["le"] = map[string]bool{}
			}
			for _, s := range f.GetMetric() {
				for _, l := range s.GetLabel() {
					if labels[l.GetName()] == nil {
						labels[l.GetName()] = map[string]bool{}
					}
					labels[l.GetName()][l.GetValue()] = true
				}
			}
			all[name] = labels
		}
	}
	return all
}

// Parts of a query: series selectors, the labels that group them, and functions.
var (
	grouping  = regexp.MustCompile(`\b(?:by|without) \(([^()]*)\)`)
	selection = regexp.MustCompile(`([a-zA-Z_]\w*)(?:\{([^}]*)\})?(?:\[(\$__rate_interval|[0-9]+[smhd])\])?`)
	matcher   = regexp.MustCompile(`^(\w+)(=~|!~|!=|=)"([^"]*)"$`)
	functions = regexp.MustCompile(`\b(?:sum|rate|increase|histogram_quantile|topk) *\(`)
	rest      = regexp.MustCompile(`^[\s(),/0-9.]*$`)
)

// check returns an error if a query is wrong.
func (s served) check(query string) error {
	grouped := map[string]bool{}
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			grouped[label] = false
		}
	}
	query = grouping.ReplaceAllString(query, "")
	query = functions.ReplaceAllString(query, "(")
	found := 0
	for _, m := range selection.FindAllStringSubmatch(query, -1) {
		labels, ok := s[m[1]]
		if !ok {
			return fmt.Errorf("%q is not served", m[1])
		}
		found++
		for label := range grouped {
			if labels[label] != nil {
				grouped[label] = true
			}
		}
		if m[2] == "" {
			return fmt.Errorf("%q selects every node", m[1])
		}
		for part := range strings.SplitSeq(m[2], ",") {
			p := matcher.FindStringSubmatch(part)
			if p == nil || labels[p[1]] == nil || p[2] == "=" && !labels[p[1]][p[3]] {
				return fmt.Errorf("%s has no series with %s", m[1], part)
			}
		}
	}
	for label, there := range grouped {
		if !there {
			return fmt.Errorf("no series has the label %s", label)
		}
	}
	left := selection.ReplaceAllString(query, "")
	if found == 0 || !rest.MatchString(left) || strings.Count(left, "(") != strings.Count(left, ")") {
		return fmt.Errorf("cannot parse %q", left)
	}
	return nil
}

// TestDashboard: every query of the dashboard uses exported series.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/grafana/bulkhead.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title      string
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	all, seen, queries := everything(t), map[int]bool{}, 0
	for _, p := range board.Panels {
		if seen[p.ID] || p.Title == "" || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %d, %q", p.ID, p.Title)
		}
		seen[p.ID] = true
		for _, q := range p.Targets {
			queries++
			if err := all.check(q.Expr); err != nil {
				t.Errorf("%s: %s: %v", p.Title, q.Expr, err)
			}
		}
	}
	if queries < 15 {
		t.Errorf("the dashboard has %d queries", queries)
	}
	for _, v := range board.Templating.List {
		if v.Name == "node" && v.Query != "label_values(bulkhead_build_info, instance)" {
			t.Errorf("nodes by %s", v.Query)
		}
	}
	for name := range all {
		ours := strings.HasPrefix(name, "bulkhead_") && !strings.HasSuffix(name, "_count") && !strings.HasSuffix(name, "_sum")
		if ours && !strings.Contains(string(text), name) {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
}

// TestCheck: check finds wrong queries.
func TestCheck(t *testing.T) {
	t.Parallel()
	all := everything(t)
	for query, good := range map[string]bool{
		`bulkhead_pods{instance=~"$node"}`:                       true,
		`sum by (state) (bulkhead_pods{instance=~"$node"})`:      true,
		`bulkhead_pods{instance=~"$node",state="ready"}`:         true,
		`rate(bulkhead_reaped_total{instance=~"$node"}[5m]) / 2`: true,
		`bulkhead_pods`:                                                                    false,
		`bulkhead_pod{instance=~"$node"}`:                                                  false,
		`bulkhead_pods{instance=~"$node",state="gone"}`:                                    false,
		`bulkhead_pods{instance=~"$node",phase="ready"}`:                                   false,
		`sum by (phase) (bulkhead_pods{instance=~"$node"})`:                                false,
		`bulkhead_pod_start_seconds{instance=~"$node"}`:                                    false,
		`mean(bulkhead_pods{instance=~"$node"})`:                                           false,
		`sum(bulkhead_pods{instance=~"$node"}`:                                             false,
		`sum by (le) (rate(bulkhead_pod_start_seconds_sum{instance=~"$node"}[$interval]))`: false,
		`1`: false,
		``:  false,
	} {
		if err := all.check(query); (err == nil) != good {
			t.Errorf("%s: %v", query, err)
		}
	}
}
