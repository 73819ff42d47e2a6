package share

import "testing"

// TestName: a name has the cache mode, and differs for all other options.
func TestName(t *testing.T) {
	seen := map[string]bool{}
	for _, path := range []string{"/a", "/b"} {
		for _, readOnly := range []bool{false, true} {
			for _, follow := range []bool{false, true} {
				for _, c := range []Cache{Auto, None, Always} {
					name := Name(path, readOnly, follow, false, c)
					got, ok := CacheOf(name)
					if seen[name] || !ok || got != c || ReadOnly(name) != readOnly || SetID(name) || name != Name(path, readOnly, follow, false, c) {
						t.Errorf("%s: %q, %v", name, got, ok)
					}
					seen[name] = true
					armed := Name(path, readOnly, follow, true, c)
					if got, ok := CacheOf(armed); !ok || got != c || ReadOnly(armed) != readOnly || SetID(armed) == readOnly {
						t.Errorf("with set-user-id: %s: %q, %v", armed, got, ok)
					}
				}
			}
		}
	}
	for _, name := range []string{"", "auto", "auto-", "auto-12", "-0123456789abcdef01234567", "some-0123456789abcdef01234567",
		"auto-0123456789abcdef0123456/", "auto-0123456789ABCDEF01234567", "../0123456789abcdef01234567", ".auto-0123456789abcdef01234567"} {
		if c, ok := CacheOf(name); ok {
			t.Errorf("%q has the cache %s", name, c)
		}
	}
	if _, err := ParseCache("some"); err == nil {
		t.Error("any word is a cache")
	}
}
