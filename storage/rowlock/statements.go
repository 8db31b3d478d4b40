package rowlock

// The statements that every engine brings, one file each.
const (
	qNow statement = "now"
)
