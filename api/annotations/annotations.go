// Package annotations names the annotations that are reserved to Bulkhead.
package annotations

import "strings"

// Prefix is that of every reserved annotation. A user's with it are refused.
const Prefix = "io.bulkhead.internal/"

// Started is when the pod began, in RFC 3339: its sandboxes may be replaced. Package pod
// notes it on each sandbox and reads it back.
const Started = Prefix + "started"

// Internal tells whether key is reserved.
func Internal(key string) bool { return strings.HasPrefix(key, Prefix) }
