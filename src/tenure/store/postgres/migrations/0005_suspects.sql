-- kind: expand
-- breaking: yes

-- Suspects of the crash guard wait in a line of their own, which older servers cannot read.
ALTER TABLE tasks DROP CONSTRAINT tasks_line_check;
ALTER TABLE tasks ADD CONSTRAINT tasks_line_check CHECK (line BETWEEN 0 AND 3) NOT VALID;

-- Whether a suspect explains why the worker died: its end is no sign that workers die by chance.
ALTER TABLE workers ADD COLUMN is_end_explained boolean NOT NULL DEFAULT false;
