package progress

import (
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
)

// widest is the maximum width of a bar in columns.
const widest = 50

// bar draws the progress of one blob in width columns.
func bar(p api.Progress, width int) string {
	left := fmt.Sprintf("  %-12s ", label(p.Blob))
	right := fmt.Sprintf(" %8s", text.Size(p.Done))
	if p.Total > 0 {
		right = fmt.Sprintf(" %8s / %-8s", text.Size(p.Done), text.Size(p.Total))
	}
	if p.State == "done" {
		right += " done"
	}
	room := min(width-len(left)-len(" 1.23 MB  / 1.23 MB  done")-3, widest)
	if room < 4 || p.Total <= 0 {
		return text.Clip(left+right, width-1)
	}
	full := int(int64(room) * max(0, min(p.Done, p.Total)) / p.Total)
	return text.Clip(left+"["+strings.Repeat("=", full)+strings.Repeat(" ", room-full)+"]"+right, width-1)
}

// label returns the displayed name of a blob: the first digits of its digest.
func label(blob string) string {
	_, digits, ok := strings.Cut(blob, ":")
	if !ok {
		digits = blob
	}
	return shortid.Of(digits)
}
