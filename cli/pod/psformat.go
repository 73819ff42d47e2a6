package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// psRow has the fields of ps --format, with podman's names where podman has them.
type psRow struct {
	ID, Name, Names, Namespace, Status, State, Ready, Ports, RunningFor, IP, Sandbox, Instance string

	Restarts  int
	Created   time.Time
	CreatedAt string
	Labels    map[string]string
}

func psRows(pods []api.Pod) []psRow {
	rows := []psRow{}
	for _, p := range pods {
		rows = append(rows, psRow{
			ID: shortid.Of(p.UID), Name: p.Name, Names: p.Name, Namespace: p.Namespace, Status: p.Status, State: p.Phase,
			Ready: fmt.Sprintf("%d/%d", p.Ready, p.Containers), Ports: strings.Join(p.Ports, ","), RunningFor: text.Age(p.Created),
			IP: p.IP, Sandbox: p.Sandbox, Instance: p.Instance, Restarts: p.Restarts, Created: p.Created,
			CreatedAt: p.Created.Format(time.RFC3339), Labels: p.Labels,
		})
	}
	return rows
}

// filters select pods like podman's --filter: every key must match with one of its values.
type filters map[string][]string

func parseFilters(list []string) (filters, error) {
	f := filters{}
	for _, one := range list {
		key, value, ok := strings.Cut(one, "=")
		if !ok || !slices.Contains([]string{"name", "id", "status", "label", "namespace"}, key) {
			return nil, fmt.Errorf("--filter %q: must be name=, id=, status=, label= or namespace= with a value", one)
		}
		f[key] = append(f[key], value)
	}
	return f, nil
}

func (f filters) match(p api.Pod) bool {
	for key, values := range f {
		if !slices.ContainsFunc(values, func(value string) bool { return matches(p, key, value) }) {
			return false
		}
	}
	return true
}

func matches(p api.Pod, key, value string) bool {
	switch key {
	case "name":
		return strings.Contains(p.Name, value)
	case "id":
		return strings.HasPrefix(p.UID, value) || strings.HasPrefix(p.Sandbox, value)
	case "namespace":
		return p.Namespace == value
	case "status":
		ended := p.Phase == "Succeeded" || p.Phase == "Failed"
		return strings.EqualFold(p.Status, value) || strings.EqualFold(p.Phase, value) || strings.EqualFold(value, "exited") && ended
	}
	name, want, given := strings.Cut(value, "=")
	have, there := p.Labels[name]
	return there && (!given || have == want)
}

// kubernetes matches the fields that a Kubernetes Pod has and a row of ps lacks.
var kubernetes = regexp.MustCompile(`\b(metadata|spec)\b|\bstatus['"\]]*[.\[]`)

// withPods adds the fields of the Kubernetes Pod to each pod if a template names such fields.
func withPods(ctx context.Context, a *app.App, f output.Format, pods []api.Pod) (any, error) {
	if !strings.HasPrefix(string(f), output.JSONPath) || !kubernetes.MatchString(string(f)) {
		return append([]api.Pod{}, pods...), nil
	}
	all := []map[string]any{}
	for _, p := range pods {
		one := map[string]any{}
		short, err := json.Marshal(p)
		if err == nil {
			err = json.Unmarshal(short, &one)
		}
		if err == nil && p.Instance == "" {
			err = a.Client.Call(ctx, "GET", a.PodPath(p.UID, ""), nil, nil, &one)
		}
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
		all = append(all, one)
	}
	return all, nil
}
