package run

import (
	"fmt"
	"io"
	"strings"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// endText explains the end of a pod if its exit code does not say enough.
func endText(end api.Ended) string {
	switch end.Reason {
	case "", "Error", "Completed":
		return ""
	case "StartError":
		container, why, _ := strings.Cut(end.Message, ": ")
		return fmt.Sprintf("container %s cannot be run: %s (check its command and the files of its image)", container, text.CannotRun(why))
	}
	if end.Message == "" {
		return end.Reason
	}
	return end.Reason + ": " + text.Plain(end.Message)
}

func printTimings(w io.Writer, m api.Started) {
	if m.VM != "" {
		fmt.Fprintln(w, "bulkhead: VM: "+text.Plain(m.VM))
	}
	for _, p := range m.Phases {
		fmt.Fprintf(w, "%9.1f ms  %s\n", float64(p.Microseconds)/1000, p.Name)
	}
}
