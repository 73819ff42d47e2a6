package top

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// twoSamples returns two samples of two pods, two seconds apart.
func twoSamples() (first, second []api.PodStats) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web := api.PodStats{
		Name: "web", UID: "1", Status: "Running", Time: at, CPU: time.Second, Memory: 120e6, MemoryLimit: 512e6, HostMemory: 150e6, Restarts: 2,
		Network: &api.Counters{In: 1000, Out: 5000}, Disk: api.Counters{In: 1e6}, PIDs: 5,
		Containers: []api.ContainerStats{
			{Name: "app", CPU: 800 * time.Millisecond, Memory: 100e6, PIDs: 4, Restarts: 2},
			{Name: "side", CPU: 200 * time.Millisecond, Memory: 20e6, MemoryLimit: 64e6, PIDs: 1},
		},
	}
	db := api.PodStats{Name: "db", UID: "2", Status: "Running", Time: at, CPU: time.Second, Memory: 300e6, MemoryLimit: 1e9}
	idle := api.PodStats{Name: "paused", UID: "3", Status: "Paused"}
	first = []api.PodStats{web, db, idle}
	web.Time, db.Time = at.Add(2*time.Second), at.Add(2*time.Second)
	web.CPU, web.Network, web.Disk.Out = 2*time.Second, &api.Counters{In: 5000, Out: 2_005_000}, 3e6
	web.Containers = []api.ContainerStats{
		{Name: "app", CPU: 900 * time.Millisecond, Memory: 100e6, PIDs: 4, Restarts: 2},
		{Name: "side", CPU: 1100 * time.Millisecond, Memory: 20e6, MemoryLimit: 64e6, PIDs: 1},
	}
	db.CPU += 100 * time.Millisecond
	return first, []api.PodStats{web, db, idle}
}

func seen(width, height int, sort string) view {
	first, second := twoSamples()
	m := &meter{}
	m.add(first)
	v := view{width: width, height: height, sort: sort, all: m.add(second), now: time.Date(2026, 1, 2, 3, 4, 7, 0, time.UTC)}
	sortFigures(v.all, sort)
	return v
}

func TestTopView(t *testing.T) {
	for _, tc := range []struct {
		name string
		view view
		want string
	}{
		{"80 columns, by CPU", seen(80, 10, "cpu"), `
03:04:07  pods 3  containers 2  CPU 55.0%  memory 420 MB of 1.51 GB
 POD / CONTAINER      CPU%       CPU    MEM / LIMIT       MEM   RX/s   TX/s  RST
>web                  50.0  ||||....    120M / 512M  ||......   2.0k   1.0M    2
   side               45.0  ||||....      20M / 64M  |||.....                  0
   app                 5.0  ........    100M / 512M  ||......                  2
 db                    5.0  ........    300M / 1.0G  ||......      -      -    0
 paused                  -         -              -         -      -      -    -


q quit  ↑↓ select  sort:  c [CPU]  m memory  n name
`},
		{"120 columns, by memory", seen(120, 8, "memory"), `
03:04:07  pods 3  containers 2  CPU 55.0%  memory 420 MB of 1.51 GB
 POD / CONTAINER                     STATUS    CPU%       CPU    MEM / LIMIT    HOST   MEM%       MEM   RX/s   TX/s  RST
>db                                 Running     5.0  ........    300M / 1.0G       -   30.0  ||......      -      -    0
 web                                Running    50.0  ||||....    120M / 512M    150M   23.4  ||......   2.0k   1.0M    2
   app                                          5.0  ........    100M / 512M           19.5  ||......                  2
   side                                        45.0  ||||....      20M / 64M           31.2  |||.....                  0
 paused                              Paused       -         -              -       -      -         -      -      -    -
q quit  ↑↓ select  sort:  c CPU  m [memory]  n name
`},
	} {
		got := "\n" + strings.Join(tc.view.lines(), "\n") + "\n"
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s\n%s", tc.name, diff, got)
		}
	}
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestTopColours: colours show states and shares, and change no characters.
func TestTopColours(t *testing.T) {
	v := seen(80, 10, "cpu")
	v.all[0].cpu, v.all[0].status = 0.95, "CrashLoopBackOff"
	bare := strings.Join(v.lines(), "\n")
	v.colour = true
	painted := strings.Join(v.lines(), "\n")
	lines := strings.Split(escape.ReplaceAllString(painted, ""), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	if diff := cmp.Diff(bare, strings.Join(lines, "\n")); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"\x1b[7;31mweb", "\x1b[7;31m||||||||", "\x1b[1;32mdb ", "\x1b[32m||||....", "\x1b[1;33mpaused"} {
		if !strings.Contains(painted, want) {
			t.Errorf("%q is not in %q", want, painted)
		}
	}
}

func TestStateColour(t *testing.T) {
	for status, want := range map[string]string{
		"Running": green, "Completed": green, "Init:0/2": yellow, "Paused": yellow, "ImagePullBackOff": red, "Error": red,
		"OOMKilled": red, "Init:Error": red, "VMKilled": red,
	} {
		if got := stateColour(status); got != want {
			t.Errorf("%s: %s", status, got)
		}
	}
}

// TestTopViewFits: at every size, no line is too long and there are not too many lines.
func TestTopViewFits(t *testing.T) {
	for width := range 220 {
		for _, height := range []int{0, 1, 2, 3, 4, 5, 24} {
			v := seen(width, height, "cpu")
			v.colour = width%2 == 1
			for range 3 {
				v.move(1)
				lines := v.lines()
				if len(lines) > height {
					t.Fatalf("%d×%d: %d lines", width, height, len(lines))
				}
				for _, line := range lines {
					if n := utf8.RuneCountInString(escape.ReplaceAllString(line, "")); n > width {
						t.Fatalf("%d×%d: a line of %d: %q", width, height, n, line)
					}
				}
			}
		}
	}
}

func TestTopSelection(t *testing.T) {
	v := seen(80, 5, "cpu") // room for two lines
	for _, want := range []string{">web", ">  side", ">  app", ">db", ">paused", ">paused"} {
		if text := strings.Join(v.lines(), "\n"); !strings.Contains(text, "\n"+want) {
			t.Errorf("%s is not selected and seen: %s", want, text)
		}
		v.move(1)
	}
	v.move(-10)
	if v.selected != "web/" {
		t.Errorf("the first is not selected, but %s", v.selected)
	}
}
