package report

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Facts are the conditions that the figures depend on.
type Facts struct {
	Date   time.Time `json:"date"`
	Runs   int       `json:"runs"`
	Cores  int       `json:"cores"`
	CPU    string    `json:"cpu"`
	Memory string    `json:"memory"`
	Load   string    `json:"loadAtStart"` // over 1, 5 and 15 minutes
	// Others is the CPU time of processes outside the benchmark while it ran, in percent of one core. It helps to
	// explain odd figures.
	Others float64 `json:"othersPercent"`
	Kernel string  `json:"kernel"`
	Accel  string  `json:"accel"`
	// Versions has the versions of the programs by name.
	Versions map[string]string `json:"versions"`
	Took     time.Duration     `json:"tookNanoseconds"`

	order []string
}

// Host returns the facts of this host.
func Host(runs int) Facts {
	f := Facts{Date: time.Now().UTC().Truncate(time.Second), Runs: runs, Cores: runtime.NumCPU(), Versions: map[string]string{}}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		f.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	f.CPU = field("/proc/cpuinfo", "model name")
	f.Memory = field("/proc/meminfo", "MemTotal")
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return f
}

// Version records the version of a program.
func (f *Facts) Version(name, version string) {
	if _, there := f.Versions[name]; !there {
		f.order = append(f.order, name)
	}
	f.Versions[name] = version
}

// field returns the value of the first line "name : value" of a file.
func field(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func (f *Facts) print(w io.Writer) {
	fmt.Fprintf(w, "Bulkhead's benchmark, %s, %d runs, took %s\n", f.Date.Format("2006-01-02 15:04 MST"), f.Runs, f.Took.Round(time.Second))
	fmt.Fprintf(w, "%d cores (%s), %s of memory, Linux %s, accelerator %s\n", f.Cores, f.CPU, f.Memory, f.Kernel, f.Accel)
	fmt.Fprintf(w, "load at start %s; while it ran, others used %.0f %% of a core\n", f.Load, f.Others)
	var all []string
	for _, name := range f.order {
		all = append(all, name+" "+f.Versions[name])
	}
	fmt.Fprintln(w, strings.Join(all, ", "))
}
