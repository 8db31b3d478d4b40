package report

// Page is not there yet.
func (r *Report) Page(string) error   { return nil }
func (r *Report) Charts(string) error { return nil }
