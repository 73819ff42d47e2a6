package pod

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

type describedContainer struct {
	Name, Image, WorkingDir string
	Command, Args           []string
	Ports                   []struct {
		Name, Protocol string
		ContainerPort  int
	}
	Env []struct {
		Name, Value string
		ValueFrom   map[string]map[string]any
	}
	Resources    struct{ Limits, Requests map[string]string }
	VolumeMounts []struct {
		Name, MountPath, SubPath string
		ReadOnly                 bool
	}
	TargetContainerName string
}

type describedStatus struct {
	Name, ContainerID, ImageID string
	Ready                      bool
	RestartCount               int
	State, LastState           describedState
}

type describedState struct {
	Waiting    *struct{ Reason, Message string }
	Running    *struct{ StartedAt time.Time }
	Terminated *struct {
		Reason, Message       string
		ExitCode, Signal      int
		StartedAt, FinishedAt time.Time
	}
}

func (d *describer) containers(title string, list []describedContainer, statuses []describedStatus) {
	d.section(title, func(d *describer) {
		for _, c := range list {
			status := describedStatus{}
			if i := slices.IndexFunc(statuses, func(s describedStatus) bool { return s.Name == c.Name }); i >= 0 {
				status = statuses[i]
			}
			d.section(c.Name, func(d *describer) { d.container(c, status) })
		}
	})
}

func (d *describer) container(c describedContainer, status describedStatus) {
	d.line("Container ID", status.ContainerID)
	d.line("Image", c.Image)
	d.line("Image ID", status.ImageID)
	d.line("Target", c.TargetContainerName)
	for _, p := range c.Ports {
		d.line("Port", strings.TrimSpace(fmt.Sprintf("%d/%s %s", p.ContainerPort, p.Protocol, p.Name)))
	}
	d.line("Command", quoted(c.Command))
	d.line("Args", quoted(c.Args))
	d.line("Working Dir", c.WorkingDir)
	d.state("State", status.State)
	d.state("Last State", status.LastState)
	d.line("Ready", strconv.FormatBool(status.Ready))
	d.line("Restart Count", strconv.Itoa(status.RestartCount))
	d.pairs("Limits", c.Resources.Limits)
	d.pairs("Requests", c.Resources.Requests)
	d.section("Environment", func(d *describer) {
		for _, e := range c.Env {
			value := e.Value
			for _, kind := range slices.Sorted(maps.Keys(e.ValueFrom)) {
				var parts []string
				for _, key := range slices.Sorted(maps.Keys(e.ValueFrom[kind])) {
					parts = append(parts, fmt.Sprintf("%s=%v", key, e.ValueFrom[kind][key]))
				}
				value = "<" + kind + " " + strings.Join(parts, " ") + ">"
			}
			d.line(e.Name, cmp.Or(value, "(empty)"))
		}
	})
	d.section("Mounts", func(d *describer) {
		for _, m := range c.VolumeMounts {
			mode := "rw"
			if m.ReadOnly {
				mode = "ro"
			}
			if m.SubPath != "" {
				mode += ", path " + m.SubPath
			}
			d.line(m.MountPath, "from "+m.Name+" ("+mode+")")
		}
	})
}

// state prints a container's state, if it is known.
func (d *describer) state(name string, s describedState) {
	switch {
	case s.Running != nil:
		d.line(name, "Running since "+stamp(s.Running.StartedAt))
	case s.Waiting != nil:
		d.line(name, strings.TrimSpace("Waiting  "+s.Waiting.Reason+"  "+s.Waiting.Message))
	case s.Terminated != nil:
		t := s.Terminated
		d.line(name, fmt.Sprintf("Terminated  %s  exit code %d", t.Reason, t.ExitCode))
		d.line("  Message", t.Message)
		d.line("  Started", stamp(t.StartedAt))
		d.line("  Finished", stamp(t.FinishedAt))
	}
}

// stamp formats a time in the local zone. The zero time gives an empty string.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC1123Z)
}

// quoted joins the words of a command and quotes those with special characters.
func quoted(words []string) string {
	var out []string
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n\"'\\") {
			w = strconv.Quote(w)
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}
