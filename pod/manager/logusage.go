package manager

import (
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
)

// LogUsage returns the disk usage of a container's logs, in bytes, and their number of files.
func (p *Pod) LogUsage(container string) (bytes, files uint64) {
	return logs.Usage(filepath.Join(p.dir, logsDir, container))
}
